"""What the gates demand, read from `config/gates.yaml`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.corpus.yaml_file import load_model


class GatePolicy(BaseModel):
    """The thresholds of all gates; rates are shares from 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_source_parse_rate: float = Field(
        ge=0, le=1, description="Share of the .vox files of the workspace that the front end must accept."
    )
    min_corpus_coverage: float = Field(
        ge=0, le=1, description="Share of the constructs that the extracted corpus must show."
    )
    max_share_error: float = Field(
        ge=0, le=1, description="How far the share of a source in the train set may be from what the mix asks for."
    )
    min_pairs: int = Field(ge=1, description="Pairs without which training does not begin.")


def load_gate_policy(path: Path) -> GatePolicy:
    """Read and check the policy.

    Args:
        path: A YAML file.

    Raises:
        ConfigurationError: It is missing, is no YAML, or holds mistakes; the message names all of them.
    """
    return load_model(path, GatePolicy)
