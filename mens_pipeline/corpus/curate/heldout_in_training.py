"""Whether held-out pairs stand in a train set: then they judge nothing."""

from pathlib import Path

from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.errors import RefusedError


def trained_heldout(heldout: Path, train: Path) -> str | None:
    """List the prompts and answers of held-out pairs that stand in a train set, whatever the white space.

    Returns:
        What was found, counted, and what to do; None where they share nothing.

    Raises:
        SourceNotFoundError: A file is not there.
    """
    pairs = list(read_pairs(heldout))
    prompts, responses = {_plain(pair.prompt) for pair in pairs}, {_plain(pair.response) for pair in pairs}
    same_prompts, same_responses, lines = set(), set(), []
    for number, row in enumerate(read_pairs(train), start=1):
        prompt, response = _plain(row.prompt), _plain(row.response)
        if prompt in prompts or response in responses:
            lines.append(number)
            same_prompts |= {prompt} & prompts
            same_responses |= {response} & responses
    if not lines:
        return None
    found = f"{len(same_prompts)} prompts and {len(same_responses)} answers of {len(pairs)} held-out pairs"
    where = f"stand in {len(lines)} rows of {train}, the first in row {lines[0]}"
    advice = "`mens corpus mix` writes both files so that they share nothing; run it, and train on what it wrote."
    return f"{heldout}: {found} {where}: what was trained on judges nothing. {advice}"


def refuse_trained_heldout(heldout: Path, train: Path) -> None:
    """Refuse to judge by held-out pairs that stand in a train set.

    Raises:
        RefusedError: One does.
        SourceNotFoundError: A file is not there.
    """
    if (found := trained_heldout(heldout, train)) is not None:
        raise RefusedError(found)


def _plain(text: str) -> str:
    return " ".join(text.split())
