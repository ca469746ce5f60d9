"""Machine-readable documents of a merged model: `merge_manifest.json`, `merge_report.json`."""

from typing import Final, Literal

from pydantic import Field

from mens_pipeline.delivery.agreement import Agreement, Demand
from mens_pipeline.delivery.merge_job import NAME, Dtype
from mens_pipeline.storage.validation import Document

MERGE_MANIFEST: Final = "merge_manifest.json"
MERGE_REPORT: Final = "merge_report.json"
_SHA256: Final = "^[0-9a-f]{64}$"


class MergedInto(Document):
    """Weights of the base that the adapter was added to."""

    weights: Literal["restored"] = Field(
        default="restored",
        description="The weights in four bits, restored: what the adapter was trained on and what the gate judged.",
    )
    quantization: str = Field(description="`nf4` or `fp4`.")
    double_quant: bool
    rounded_to: str = Field(description="What the base was rounded to before four bits.")
    why: str = Field(
        default="The gate judged the adapter on these weights. On those that the base came with, the merged model "
        "would differ from the judged one by the error of quantisation.",
    )


class MergeManifest(Document):
    """Base, adapter and data types of a merged model."""

    schema_: Literal["mens_merge_manifest_v1"] = Field(default="mens_merge_manifest_v1", alias="schema")
    name: str = Field(pattern=NAME)
    base_model: str
    base_revision: str | None
    base_sha256: str = Field(pattern=_SHA256, description="Of the folder of the base.")
    base_licence: str | None
    adapter_sha256: str = Field(pattern=_SHA256, description="Of the adapter's weights.")
    merged_into: MergedInto
    dtype: Dtype = Field(description="What the weights are stored in.")
    num_values: int = Field(ge=1, description="Of all weights.")
    contract_digest: str = Field(pattern=_SHA256, description="Of the training run.")
    system_prompt: str
    libraries: dict[str, str] = Field(description="Versions that made it.")


class MergeReport(Document):
    """Whether a merged folder answers as the judged model does."""

    schema_: Literal["mens_merge_report_v1"] = Field(default="mens_merge_report_v1", alias="schema")
    reference: str = Field(description="What it is compared with.")
    candidate: str = Field(description="What is compared.")
    adapter_sha256: str = Field(pattern=_SHA256)
    heldout_sha256: str = Field(pattern=_SHA256, description="Of the held-out pairs that were asked.")
    computed_on: tuple[str, str] = Field(description="Device, and what the reference computed in.")
    max_new_tokens: int = Field(ge=1)
    demand: Demand
    agreement: Agreement
    passed: bool
    reasons: tuple[str, ...] = Field(description="Why it does not pass, a sentence each.")

    @property
    def summary(self) -> str:
        """One line for people."""
        found = self.agreement
        tokens = f"{found.num_same_tokens}/{found.num_tokens} tokens ({100 * found.token_agreement:.2f} %)"
        answers = f"{found.num_same_answers}/{found.num_prompts} answers"
        rates = f"{found.candidate_parse_rate.short}, before {found.reference_parse_rate.short}"
        return f"{tokens} and {answers} the same, parse rate {rates}"
