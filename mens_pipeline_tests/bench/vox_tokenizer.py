"""Compare the speed of VoxTokenizer with the base model's tokenizer, on the golden programs, on one core, in one run.

`python -m mens_pipeline_tests.bench.vox_tokenizer`
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from mens_pipeline.models.base_wheels import SMOLLM2
from mens_pipeline.models.find_base import find_base_model
from mens_pipeline.scratch import tokenizer
from mens_pipeline.settings import load_settings
from mens_pipeline_tests.bench.machine import machine_name
from mens_pipeline_tests.bench.ratios import note
from mens_pipeline_tests.language.examples import golden_programs

_SECONDS_A_ROW = 3.0


def main() -> None:
    from tokenizers import Tokenizer  # noqa: PLC0415 - of the library, without the deep learning stack

    texts = [text for text in golden_programs().values() if text.isascii()]
    base = find_base_model(SMOLLM2, None, load_settings().cache_root / "base_models")
    of_base = Tokenizer.from_file(str(base.path / "tokenizer.json"))
    size = sum(map(len, texts)) / 1e6
    print(f"{machine_name()}, one core, best of several runs; {len(texts)} golden programs, {size:.2f} MB")
    print()
    print(f"{'tokenizer':<44}{'tokens':>9}{'chars/token':>13}{'tokens/s':>13}{'MB/s':>8}")
    rows: list[tuple[str, Callable[[str], Sequence[int]]]] = [
        ("VoxTokenizer, encode", tokenizer.encode),
        (f"{base.name.split('/')[-1]}, encode", lambda text: of_base.encode(text, add_special_tokens=False).ids),
    ]
    speeds = [_row(name, encode, texts, size) for name, encode in rows]
    note("VoxTokenizer, beside the tokenizer of the base, encoding", speeds[0] / speeds[-1])


def _row(name: str, work: Callable[[Any], Sequence[int]], inputs: Sequence[Any], size: float) -> float:
    started, best, tokens = perf_counter(), float("inf"), 0
    while perf_counter() - started < _SECONDS_A_ROW:
        before = perf_counter()
        tokens = sum(len(work(item)) for item in inputs)
        best = min(best, perf_counter() - before)
    print(f"{name:<44}{tokens:>9,}{size * 1e6 / tokens:>13.2f}{tokens / best:>13,.0f}{size / best:>8.2f}")
    return size / best


if __name__ == "__main__":
    main()
