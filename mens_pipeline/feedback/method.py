"""What may be done with judged answers."""

from enum import StrEnum


class Method(StrEnum):
    """What is done with judged answers."""

    RAFT = "raft"
    """Supervised training on the accepted answers among rows of the train set."""
    DPO = "dpo"
    """Preference of accepted answers, or of references, over answers that failed."""
    CONTROL = "control"
    """Nothing: supervised training on rows of the train set alone, to compare with."""
