"""Sources of pairs are mixed into one train set, in the requested shares."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mens_pipeline.corpus.curate.mix import (
    Mix,
    MixConfig,
    MixedSource,
    MixSource,
    RecordFormat,
    SourceRows,
    load_mix_config,
    mix_sources,
)
from mens_pipeline.corpus.schema.reasons import MixDrop, SkippedReason
from mens_pipeline.corpus.schema.records import Lane, TrainingPair
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.settings import MIX_CONFIG
from mens_pipeline_tests.every import every_row

_UPSTREAM = """
sources:
  - path: mix_sources/golden.jsonl
    weight: 5.0
  - path: mix_sources/tools.jsonl
    weight: 0.5
    optional: true
    sample_rate: 0.25
    record_format: tool_trace
output: out/train_mixed.jsonl
include_lanes: [vox_codegen, vox_tooling, rust_context]
exclude_lanes: [rust_context]
"""


@pytest.mark.seed_row(43)
def test_the_mix_of_the_project_is_valid() -> None:
    config = load_mix_config(MIX_CONFIG)

    assert config.lanes == {Lane.CODEGEN}
    assert [source.path for source in config.sources] == ["pairs.jsonl", "synthetic.jsonl", "telemetry.jsonl"]


@pytest.mark.parametrize("path", ["/rows.jsonl", "../rows.jsonl", "a\\\\rows.jsonl"])
def test_a_path_leads_below_the_data_folder(tmp_path: Path, path: str) -> None:
    (tmp_path / "mix.yaml").write_text(f'sources: [{{path: "{path}"}}]')

    with pytest.raises(ConfigurationError, match="expected a path below the data folder"):
        load_mix_config(tmp_path / "mix.yaml")


@pytest.mark.seed_row(9, 43)
def test_all_keys_of_upstream_are_read(tmp_path: Path) -> None:
    (tmp_path / "mix.yaml").write_text(_UPSTREAM)
    config = load_mix_config(tmp_path / "mix.yaml")

    assert config.sources == (
        MixSource(path="mix_sources/golden.jsonl", weight=5),
        MixSource(
            path="mix_sources/tools.jsonl",
            weight=0.5,
            optional=True,
            sample_rate=0.25,
            record_format=RecordFormat.TOOL_TRACE,
        ),
    )
    assert config.output == "out/train_mixed.jsonl"
    assert config.lanes == {Lane.CODEGEN, Lane.TOOLING}
    assert (config.max_repeats, config.seed) == (2.0, 0)
    assert config.sources[0].model_dump(exclude={"path", "weight"}) == {
        "optional": False,
        "sample_rate": 1.0,
        "record_format": None,
    }


def test_without_lanes_only_code_trains() -> None:
    source = MixSource(path="a")

    assert MixConfig(sources=(source,)).lanes == {Lane.CODEGEN}
    assert MixConfig(sources=(source,), exclude_lanes=(Lane.CODEGEN,)).lanes == set()


@every_row(
    ("sources: []", "sources: Tuple should have at least 1 item"),
    ("{}", "sources: Field required"),
    ("sources: [{path: a, wieght: 1}]", r"sources\.0\.wieght: unknown"),
    ("sources: [{path: ''}]", r"sources\.0\.path"),
    ("sources: [{path: a, weight: -1}]", r"sources\.0\.weight: .*greater than or equal to 0"),
    ("sources: [{path: a, weight: .inf}]", r"sources\.0\.weight: .*finite"),
    ("sources: [{path: a, sample_rate: 0}]", r"sources\.0\.sample_rate"),
    ("sources: [{path: a, sample_rate: 1.1}]", r"sources\.0\.sample_rate"),
    ("sources: [{path: a, record_format: csv}]", r"sources\.0\.record_format: .*tool_trace"),
    ("sources: [{path: a}]\ninclude_lanes: [python]", r"include_lanes\.0"),
    ("sources: [{path: a}]\nmax_repeats: 0.5", "max_repeats"),
    ("sources: [{path: a}, {path: b}, {path: a}]", "named more than once: a"),
    ("sources: [{path: ./a.jsonl}]\noutput: a.jsonl", r"named more than once: a\.jsonl"),
    ("sources: [{path: heldout.jsonl}]", r"named more than once: heldout\.jsonl"),
    ("sources: [{path: b/aside.jsonl}]\noutput: b/a.jsonl", r"named more than once: b/aside\.jsonl"),
    ("sources: [{path: a}]\noutput: train.parquet", "String should match"),
    ("sources: [{path: a}\n", "not YAML"),
    ("", "the document: Input should be"),
)
def test_mistakes_are_named_with_their_places(content: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "mix.yaml").write_text(content)

    with pytest.raises(ConfigurationError, match=rf"(?s)mix\.yaml: .*{problem}.*Correct the file"):
        load_mix_config(tmp_path / "mix.yaml")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        load_mix_config(tmp_path / "mix.yaml")


def _pairs(name: str, number: int, lane: Lane = Lane.CODEGEN) -> list[TrainingPair]:
    return [TrainingPair(prompt=f"{name} {n}", response="fn f() { }", lane=lane) for n in range(number)]


def _rows(name: str, number: int) -> SourceRows:
    return SourceRows(_pairs(name, number), sha256="00")


def _mix(rows: dict[str, SourceRows], weights: dict[str, float] | None = None, **options: Any) -> Mix:
    per_source = options.pop("per_source", {})
    sources = tuple(
        MixSource(path=path, weight=(weights or {}).get(path, 1.0), **per_source.get(path, {})) for path in rows
    )
    return mix_sources(MixConfig(sources=sources, **options), rows)


def _count_emitted(mix: Mix) -> dict[str, int]:
    return {source.source.path: source.emitted for source in mix.sources}


def test_weights_are_shares() -> None:
    mix = _mix({"a": _rows("a", 100), "b": _rows("b", 40)}, {"a": 4, "b": 1})
    report = mix.report().model_dump()

    assert _count_emitted(mix) == {"a": 160, "b": 40}
    assert [source["requested_share"] for source in report["sources"]] == [0.8, 0.2]
    assert [source["share_of_output"] for source in report["sources"]] == [0.8, 0.2]
    assert [source["repeats"] for source in report["sources"]] == [1.6, 1.0]
    assert (report["total_emitted"], report["total_distinct"]) == (200, 140)


def test_a_source_that_is_too_small_falls_short_of_its_share() -> None:
    mix = _mix({"a": _rows("a", 10), "b": _rows("b", 100)}, max_repeats=2.5)
    (small, _) = mix.report().model_dump()["sources"]

    assert _count_emitted(mix) == {"a": 25, "b": 100}
    assert (small["requested_share"], small["share_of_output"]) == (0.5, 0.2)


_SOURCES = st.lists(st.tuples(st.integers(1, 40), st.floats(0.01, 100)), min_size=1, max_size=5)


@pytest.mark.seed_row(9)
@given(_SOURCES, st.floats(1, 8), st.integers(0, 9))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_shares_are_met_for_any_sizes_and_weights(
    sources: list[tuple[int, float]], max_repeats: float, seed: int
) -> None:
    rows = {str(n): _rows(str(n), size) for n, (size, _) in enumerate(sources)}
    weights = {str(n): weight for n, (_, weight) in enumerate(sources)}
    mix = _mix(rows, weights, max_repeats=max_repeats, seed=seed)
    uses = Counter(pair.prompt for pair in mix.rows)
    total = max(size * sum(weights.values()) / weight for size, weight in sources)

    assert set(uses) == {pair.prompt for source in rows.values() for pair in source.pairs or []}
    assert max(uses.values()) <= math.ceil(max_repeats)
    assert sum(_count_emitted(mix).values()) == len(mix.rows)
    for source, (size, weight) in zip(mix.sources, sources, strict=True):
        wanted = total * weight / sum(weights.values())
        assert abs(source.emitted - min(wanted, math.floor(size * max_repeats))) <= 0.51
        counts = [uses[pair.prompt] for pair in source.distinct]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("weights", [(1e308, 1e308), (5e-324, 1e308), (5e-324, 5e-324)])
def test_weights_may_differ_extremely(weights: tuple[float, float]) -> None:
    mix = _mix({"a": _rows("a", 3), "b": _rows("b", 3)}, dict(zip("ab", weights, strict=True)))

    assert _count_emitted(mix)["a"] >= 3
    assert _count_emitted(mix)["b"] >= 3


@pytest.mark.seed_row(9)
def test_the_seed_decides_order_and_repeats() -> None:
    rows = {"a": _rows("a", 30), "b": _rows("b", 20)}
    first, second, other = (_mix(rows, {"a": 1, "b": 1}, seed=seed).rows for seed in (0, 0, 1))

    assert first == second
    assert first != other
    assert len(first) == len(other)
    assert [pair.prompt[0] for pair in first] != sorted(pair.prompt[0] for pair in first)


def test_a_sample_is_drawn_by_the_seed() -> None:
    options: dict[str, Any] = {"per_source": {"a": {"sample_rate": 0.3}}}
    one, again = (_mix({"a": _rows("a", 400)}, **options) for _ in range(2))
    beside = _mix({"b": _rows("b", 9), "a": _rows("a", 400)}, **options)
    other = _mix({"a": _rows("a", 400)}, **options, seed=1)
    chosen = [pair.prompt for pair in one.sources[0].distinct]

    assert 0.2 < len(chosen) / 400 < 0.4
    assert one.sources[0].dropped == Counter({MixDrop.SAMPLED_OUT: 400 - len(chosen)})
    assert chosen == [pair.prompt for pair in again.sources[0].distinct]
    assert chosen == [pair.prompt for pair in beside.sources[1].distinct]
    assert chosen != [pair.prompt for pair in other.sources[0].distinct]


@every_row(
    ((), (), {Lane.CODEGEN}),
    ((Lane.CODEGEN, Lane.DOCS_QA), (), {Lane.CODEGEN, Lane.DOCS_QA}),
    ((Lane.CODEGEN, Lane.DOCS_QA), (Lane.CODEGEN,), {Lane.DOCS_QA}),
)
def test_only_rows_of_the_lanes_train(include: tuple[Lane, ...], exclude: tuple[Lane, ...], left: set[Lane]) -> None:
    lanes = (Lane.CODEGEN, Lane.DOCS_QA, Lane.TOOLING)
    rows = SourceRows([pair for lane in lanes for pair in _pairs(lane, 3, lane)])
    mix = _mix({"a": rows}, include_lanes=include, exclude_lanes=exclude)

    assert {pair.lane for pair in mix.rows} == left
    assert mix.sources[0].dropped[MixDrop.LANE] == 9 - 3 * len(left)


def test_a_pair_of_several_sources_comes_from_the_first() -> None:
    a = SourceRows(_pairs("x", 4) + _pairs("x", 2), unreadable=3, sha256="00")
    mix = _mix({"a": a, "b": SourceRows(_pairs("x", 6), sha256="11")})
    first, second = mix.report().model_dump()["sources"]

    assert (first["input_lines"], first["distinct_lines"], second["distinct_lines"]) == (9, 4, 2)
    dropped = {reason: count for reason, count in first["dropped"].items() if count}
    assert dropped == {"unreadable": 3, "duplicate": 2}
    assert second["dropped"]["duplicate"] == 4
    for source in mix.sources:
        source.check()


def test_sources_without_rows_have_a_reason() -> None:
    nothing = {
        "zero": _rows("z", 3),
        "missing": SourceRows(None),
        "empty": SourceRows([], sha256="00"),
        "lane": SourceRows(_pairs("d", 2, Lane.DOCS_QA), sha256="00"),
        "bad": SourceRows([], unreadable=2, sha256="00"),
    }
    optional = {path: {"optional": True} for path in nothing if path != "zero"}
    mix = _mix({**nothing, "a": _rows("a", 3)}, {"zero": 0}, per_source=optional)
    reasons = {source["path"]: source["skipped_reason"] for source in mix.report().model_dump()["sources"]}

    assert reasons == {
        "zero": SkippedReason.WEIGHT_ZERO,
        "missing": SkippedReason.MISSING_FILE_OPTIONAL,
        "empty": SkippedReason.EMPTY_FILE,
        "lane": SkippedReason.NO_LINES_PASSED_FILTERS,
        "bad": SkippedReason.NO_LINES_PASSED_FILTERS,
        "a": None,
    }
    assert _count_emitted(mix) == {**dict.fromkeys(nothing, 0), "a": 3}
    assert mix.sources[-1].requested_share == 1.0


def test_a_source_of_weight_zero_hides_no_rows() -> None:
    mix = _mix({"zero": _rows("x", 3), "a": _rows("x", 3)}, {"zero": 0})

    assert _count_emitted(mix) == {"zero": 0, "a": 3}


@every_row(
    (SourceRows(None), "b: the file is missing"),
    (SourceRows([], sha256="00"), r"b: none of its 0 rows is used\."),
    (
        SourceRows(_pairs("a", 2) + _pairs("d", 3, Lane.DOCS_QA), unreadable=1, sha256="00"),
        r"b: none of its 6 rows is used \(1 unreadable, 2 duplicate, 3 lane_not_trained\)",
    ),
)
def test_a_required_source_without_rows_is_refused(rows: SourceRows, problem: str) -> None:
    with pytest.raises(RefusedError, match=rf"{problem}.*Create it, or mark the source optional"):
        _mix({"a": _rows("a", 3), "b": rows})


def test_a_mix_without_rows_is_refused() -> None:
    with pytest.raises(RefusedError, match="no source contributes a row"):
        _mix({"a": SourceRows(None), "b": _rows("b", 2)}, {"b": 0}, per_source={"a": {"optional": True}})


def test_an_empty_train_set_has_no_shares() -> None:
    source = MixedSource(source=MixSource(path="a"))

    assert (source.report(0).share_of_output, source.report(0).num_unaccounted) == (0.0, 0)
