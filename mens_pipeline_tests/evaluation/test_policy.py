"""The gate policy."""

from pathlib import Path

import pytest

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.evaluation.policy import load_gate_policy
from mens_pipeline.settings import PROJECT_ROOT


def test_the_shipped_policy_loads() -> None:
    """The file in `config/` fits its model."""
    policy = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml")

    assert (policy.min_source_parse_rate, policy.min_corpus_coverage, policy.min_pairs) == (0.70, 0.50, 50)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("min_source_parse_rate: 1.5\n", "min_source_parse_rate: Input should be less than or equal to 1"),
        (
            "min_source_parse_rate: 0.5\nmin_corpus_coverage: 0.5\nmin_rate: 1\n",
            "min_rate: Extra inputs are not permitted",
        ),
        ("", "valid dictionary"),
        ("a: [\n", "not YAML"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, content: str, problem: str) -> None:
    """The message says which file, which key and what was expected."""
    path = tmp_path / "gates.yaml"
    path.write_text(content)

    with pytest.raises(ConfigurationError, match="Correct the file") as error:
        load_gate_policy(path)
    assert str(path) in str(error.value)
    assert problem in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """There are no silent defaults."""
    with pytest.raises(ConfigurationError, match=r"No such file or directory\. Restore the file"):
        load_gate_policy(tmp_path / "gates.yaml")
