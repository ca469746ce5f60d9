"""`config/evaluation.yaml`."""

from pydantic import ConfigDict, Field

from mens_pipeline.inference.generation import Decoding, Syntax


class EvaluationConfig(Decoding):
    """`config/evaluation.yaml`: decoding, and the prompts besides the eval suite."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    syntax: Syntax = Syntax.FALLBACK
    """Of the adapter; all others complete freely."""
    base_tasks: int | None = Field(default=48, ge=1)
    """Tasks that the base is asked, all with hidden tests among them; null: all."""
    few_shot_tasks: int | None = Field(default=16, ge=0)
    """Tasks that the base is asked with examples in its prompt; null: all, 0: none."""
    family_tasks: int = Field(default=24, ge=0)
    """Synthetic tasks of each group that the adapter is asked; 0: none."""

    infill_holes: int = Field(default=500, ge=0, le=20_000)
    """Holes of held-out programs that the adapter fills; 0: none."""
    infill_lines: int = Field(default=120, ge=1)
    """Of these, rests of lines that models are asked for that see no suffix."""
    infill_tokens: int = Field(default=64, ge=1, le=1_024)
    """Most tokens of a piece."""

    @property
    def decoding(self) -> Decoding:
        """Decoding options without those of the eval suite."""
        return Decoding.model_validate(self.model_dump(include=set(Decoding.model_fields)))
