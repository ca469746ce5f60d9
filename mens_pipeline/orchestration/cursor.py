"""What a sensor remembers of its last look: of constant size, whatever it looks at."""

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class Cursor(BaseModel):
    """The cursor of a sensor that watches one fingerprint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int = Field(ge=0, description="Goes up with every change; begins with the second of the first look.")
    fingerprint: str = Field(description="What was seen last.")

    def moved(self, fingerprint: str) -> "Cursor":
        """Return the cursor after a change.

        Args:
            fingerprint: What is seen now.
        """
        return Cursor(n=self.n + 1, fingerprint=fingerprint)

    def run_key(self, sensor: str) -> str:
        """Return the key that keeps Dagster from starting the same run twice.

        It holds the counter, because Dagster never runs a key again: after A, B, A the last A is another key. The
        counter begins with a time, so that a cursor which was reset does not meet its old keys.

        Args:
            sensor: Its name.
        """
        return f"{sensor}-{self.n}-{self.fingerprint[:16]}"


def read_cursor(text: str | None) -> Cursor | None:
    """Parse the cursor as Dagster kept it; None before the first look, and when a person has put something else there.

    Args:
        text: As kept.
    """
    if text is None:
        return None
    try:
        return Cursor.model_validate_json(text)
    except ValidationError:
        return None
