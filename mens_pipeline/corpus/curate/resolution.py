"""Whether the names and types of a row hold, beside what its request shows."""

from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.language.ast.declarations import Module
from mens_pipeline.language.requests import mentioned_names, words_of_code
from mens_pipeline.language.semantics import first_error


def semantic_problem(row: ExtractedRecord | TrainingPair, code: str, module: Module) -> str | None:
    """Return what is wrong with the names and types of the code of a row; None where nothing is known to be.

    What the request mentions or the hidden tests bring need not be declared by an answer.
    """
    assumed: set[str] = set()
    if isinstance(row, TrainingPair):
        assumed = mentioned_names(row.prompt) | words_of_code(row.tests or "")
    found = first_error(module, code, frozenset(assumed))
    return f"line {found.start.line}: {found.code}: {found.message}" if found is not None else None
