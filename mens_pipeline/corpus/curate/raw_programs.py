"""Programs of the workspace as rows without a request, of which a model learns every token."""

from collections.abc import Iterable
from typing import Final

from mens_pipeline.corpus.schema.records import Lane, SourceKind
from mens_pipeline.corpus.schema.training_pair import TrainingPair

RAW: Final = "raw"
"""The `task_family` of such rows; training shows their response alone."""

_PROMPT: Final = "Vox"
"""A pair has a prompt; that of a raw row is never shown."""

_MOST_CHARACTERS: Final = 700
"""Of a piece that holds more than one declaration: some 230 tokens of SmolLM2, at 3.0 characters each."""


def raw_rows(pairs: Iterable[TrainingPair]) -> list[TrainingPair]:
    """Join the declarations of each source file that train, in their order, to pieces of some hundred characters.

    Only what was split off for training comes in, so nothing of a held-out file, nor anything near to one. A piece ends
    where a declaration ends. A file whose declarations do not train by themselves comes in as a whole.

    Args:
        pairs: Pairs that train.
    """
    files: dict[str, dict[tuple[int, str], TrainingPair]] = {}
    whole: dict[str, TrainingPair] = {}
    for pair in pairs:
        if pair.source is None or pair.lane is not Lane.CODEGEN:
            continue
        if pair.source.kind is SourceKind.VOX_FILE:
            whole[pair.source.path] = pair
        elif pair.source.kind in {SourceKind.VOX_DECLARATION, SourceKind.DOC_BLOCK}:
            files.setdefault(pair.source.path, {})[pair.source.span[0], pair.response] = pair
    rows = []
    for path in sorted({*files, *whole}):
        ordered = [pair for _, pair in sorted(files[path].items())] if path in files else [whole[path]]
        rows += [_row(piece) for piece in _pieces(ordered)]
    return rows


def _pieces(pairs: list[TrainingPair]) -> list[list[TrainingPair]]:
    """Neighbours together, as long as they stay below the limit."""
    pieces: list[list[TrainingPair]] = []
    length = 0
    for pair in pairs:
        length += len(pair.response) + 1
        if not pieces or length > _MOST_CHARACTERS:
            pieces.append([])
            length = len(pair.response)
        pieces[-1].append(pair)
    return pieces


def _row(piece: list[TrainingPair]) -> TrainingPair:
    hardest = max(piece, key=lambda pair: pair.difficulty)
    text = "\n\n".join(pair.response.strip("\n") for pair in piece) + "\n"
    return hardest.model_copy(update={"prompt": _PROMPT, "response": text, "task_family": RAW})
