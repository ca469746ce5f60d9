"""Analyses are cached within bounds."""

from mens_pipeline.language import Mode, analyze
from mens_pipeline.language.front_end import AnalysisCache, analyze_uncached


def test_a_text_is_parsed_once() -> None:
    source = "fn remembered() to int { 1 }"
    first = analyze(source)
    assert analyze(str(source)) is first
    assert analyze_uncached(source) is not first
    assert analyze_uncached(source) == first
    assert analyze(source, Mode.SCRIPT) is not first


def test_recently_used_analyses_are_kept() -> None:
    cache = AnalysisCache(max_characters=200)
    one, two, three = (f"fn f{number}() to int {{ {number} }}" for number in range(3))
    kept, dropped = cache.analyze(one, Mode.SOURCE), cache.analyze(two, Mode.SOURCE)
    assert cache.analyze(one, Mode.SOURCE) is kept
    cache.analyze(three, Mode.SOURCE)
    assert cache.analyze(one, Mode.SOURCE) is kept
    assert cache.analyze(two, Mode.SOURCE) is not dropped


def test_a_text_beyond_the_bound_evicts_nothing() -> None:
    cache = AnalysisCache(max_characters=200)
    short = "fn f() to int { 1 }"
    long = short + "\n" * 400
    kept, first = cache.analyze(short, Mode.SOURCE), cache.analyze(long, Mode.SOURCE)

    assert cache.analyze(long, Mode.SOURCE) == first
    assert cache.analyze(long, Mode.SOURCE) is not first
    assert cache.analyze(short, Mode.SOURCE) is kept
