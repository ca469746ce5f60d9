"""Measure the token masks of the exported grammar, teacher-forced on the golden programs, on one core.

`python -m mens_pipeline_tests.bench.grammar`
"""

from time import perf_counter

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from mens_pipeline.language import Mode, mode_of
from mens_pipeline.language.grammar.export import GrammarFormat, grammar_text
from mens_pipeline.models.base_wheels import SMOLLM2
from mens_pipeline.models.find_base import find_base_model
from mens_pipeline.settings import load_settings
from mens_pipeline_tests.bench.machine import machine_name
from mens_pipeline_tests.language.examples import golden_programs


def main() -> None:
    base = find_base_model(SMOLLM2, None, load_settings().cache_root / "base_models")
    tokenizer = LLTokenizer((base.path / "tokenizer.json").read_text(encoding="utf-8"))
    before = perf_counter()
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(grammar_text(GrammarFormat.LARK)))
    compiling = perf_counter() - before
    programs = [source for name, source in golden_programs().items() if mode_of(name) is Mode.SOURCE]
    print(f"{machine_name()}, one core; llguidance, {tokenizer.vocab_size:,} tokens; grammar read in {compiling:.2f} s")
    print()
    print(f"{'microseconds a mask':<24}{'masks':>9}{'whole programs':>16}{'mean':>8}{'median':>8}{'p99':>8}{'most':>9}")
    for run in ("first, tables are made", "again"):
        times: list[float] = []
        num_whole = sum(_follow(matcher, tokenizer.tokenize_str(source), times) for source in programs)
        median, high, most = np.percentile(times, (50, 99, 100)) * 1e6
        shares = f"{len(times):>9,}{f'{num_whole}/{len(programs)}':>16}{np.mean(times) * 1e6:>8,.0f}"
        print(f"{run:<24}{shares}{median:>8,.0f}{high:>8,.0f}{most:>9,.0f}")


def _follow(matcher: LLMatcher, tokens: list[int], times: list[float]) -> bool:
    matcher.reset()
    for token in tokens:
        before = perf_counter()
        matcher.compute_bitmask()
        times.append(perf_counter() - before)
        if not matcher.consume_token(token):
            return False
    return matcher.is_accepting()


if __name__ == "__main__":
    main()
