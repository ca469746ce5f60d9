"""Measure the speed of encoding pairs: `python -m mens_pipeline_tests.bench.tokenizer BASE [TRAIN]`."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.records import TrainingPair, read_pairs
from mens_pipeline.models.chat import encode
from mens_pipeline_tests.bench.machine import machine_name


def tokens_per_second(base: Path, pairs: Sequence[TrainingPair]) -> tuple[int, float]:
    """Return the number of tokens of some pairs, and the tokens encoded per second in one thread."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
    begin = time.perf_counter()
    num_tokens = sum(len(encode(tokenizer, SYSTEM_PROMPT, pair.prompt, pair.response)) for pair in pairs)
    return num_tokens, num_tokens / (time.perf_counter() - begin)


def main(base: Path, train: Path) -> None:
    pairs = list(read_pairs(train))
    num_tokens, rate = tokens_per_second(base, pairs)
    print(machine_name())
    print(f"{len(pairs)} rows, {num_tokens} tokens, {rate:,.0f} tokens/s in one thread")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "build/train.jsonl"))
