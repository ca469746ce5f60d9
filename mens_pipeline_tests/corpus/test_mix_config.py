"""`config/mix.yaml`."""

from pathlib import Path

import pytest

from mens_pipeline.corpus.curate.mix_config import MixConfig, MixSource, RecordFormat, load_mix_config
from mens_pipeline.corpus.schema.records import Lane
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.settings import MIX_CONFIG

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
def test_the_mix_of_the_project_holds_together() -> None:
    """Its lanes are code alone."""
    config = load_mix_config(MIX_CONFIG)

    assert config.lanes == {Lane.CODEGEN}
    assert [source.path for source in config.sources] == ["pairs.jsonl", "synthetic.jsonl", "telemetry.jsonl"]


@pytest.mark.parametrize("path", ["/rows.jsonl", "../rows.jsonl", "a\\\\rows.jsonl"])
def test_a_path_leads_below_the_data_folder(tmp_path: Path, path: str) -> None:
    """Anywhere else it is refused."""
    (tmp_path / "mix.yaml").write_text(f'sources: [{{path: "{path}"}}]')

    with pytest.raises(ConfigurationError, match="expected a path below the data folder"):
        load_mix_config(tmp_path / "mix.yaml")


@pytest.mark.seed_row(9, 43)
def test_all_keys_of_upstream_are_read(tmp_path: Path) -> None:
    """Paths, weights, lanes, formats; what is not said has its default."""
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
    """And nothing, when that is excluded."""
    source = MixSource(path="a")

    assert MixConfig(sources=(source,)).lanes == {Lane.CODEGEN}
    assert MixConfig(sources=(source,), exclude_lanes=(Lane.CODEGEN,)).lanes == set()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("sources: []", "sources: Tuple should have at least 1 item"),
        ("{}", "sources: Field required"),
        ("sources: [{path: a, wieght: 1}]", r"sources\.0\.wieght: Extra inputs are not permitted"),
        ("sources: [{path: a}]\nsedd: 1", "sedd: Extra inputs are not permitted"),
        ("sources: [{path: ''}]", r"sources\.0\.path"),
        ("sources: [{path: a, weight: -1}]", r"sources\.0\.weight: .*greater than or equal to 0"),
        ("sources: [{path: a, weight: .inf}]", r"sources\.0\.weight: .*finite"),
        ("sources: [{path: a, sample_rate: 0}]", r"sources\.0\.sample_rate"),
        ("sources: [{path: a, sample_rate: 1.1}]", r"sources\.0\.sample_rate"),
        ("sources: [{path: a, record_format: csv}]", r"sources\.0\.record_format: .*tool_trace"),
        ("sources: [{path: a}]\ninclude_lanes: [python]", r"include_lanes\.0"),
        ("sources: [{path: a}]\nmax_repeats: 0.5", "max_repeats"),
        ("sources: [{path: a}, {path: b}, {path: a}]", "named more than once: a"),
        ("sources: [{path: a.jsonl}]\noutput: a.jsonl", r"named more than once: a\.jsonl"),
        ("sources: [{path: heldout.jsonl}]", r"named more than once: heldout\.jsonl"),
        ("sources: [{path: families.jsonl}]", r"named more than once: families\.jsonl"),
        ("sources: [{path: a}]\noutput: train.parquet", "String should match"),
        ("sources: [{path: a}\n", "not YAML"),
        ("", "the whole: Input should be"),
    ],
)
def test_mistakes_are_named_with_their_places(tmp_path: Path, content: str, problem: str) -> None:
    """The message says what to do."""
    (tmp_path / "mix.yaml").write_text(content)

    with pytest.raises(ConfigurationError, match=rf"(?s)mix\.yaml: .*{problem}.*Correct the file"):
        load_mix_config(tmp_path / "mix.yaml")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """It is never a default."""
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        load_mix_config(tmp_path / "mix.yaml")
