"""Limits on the cost of an evolution."""

from pydantic import BaseModel, ConfigDict, Field


class Budget(BaseModel):
    """Bounds of one evolution. Requests, tokens and rows count those of earlier calls with the same ledger."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_requests: int = Field(ge=0, description="Requests that the generator answers.")
    max_tokens: int = Field(ge=0, description="Tokens of requests and replies; never exceeded.")
    max_minutes: float = Field(ge=0, description="Of one call; what is on its way then is still taken.")
    max_rows: int = Field(ge=0, description="Rows that are kept.")


class Plan(BaseModel):
    """Seed, generations, repairs and budget of an evolution."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(ge=0, description="Decides the order of seeds and the operators.")
    generations: int = Field(ge=1, le=8, description="How often a row that was kept is evolved again.")
    budget: Budget
    repairs: int = Field(default=0, ge=0, le=2, description="How often an answer that is no Vox is sent back.")
