"""Methods of learning from judged answers."""

from enum import StrEnum


class Method(StrEnum):
    """Methods of learning from judged answers."""

    RAFT = "raft"
    """Supervised training on the accepted answers among rows of the train set."""
    DPO = "dpo"
    """Preference of accepted answers, or of references, over answers that failed."""
    GRPO = "grpo"
    """Rewards of answers that it writes while it trains, to prompts whose answers were not all worth the same."""
    CONTROL = "control"
    """Nothing: supervised training on rows of the train set alone, to compare with."""
