"""A piece of Vox code as a record."""

import hashlib
from collections import Counter
from collections.abc import Sequence

from pydantic import JsonValue

from mens_pipeline.corpus.schema.records import ExtractedRecord, Lane, Source
from mens_pipeline.language import Construct, construct_of
from mens_pipeline.language.ast.declarations import Declaration


def code_record(  # noqa: PLR0913 - a record has this many parts
    text: str,
    declarations: Sequence[Declaration],
    source: Source,
    *,
    weight: float,
    metadata: dict[str, JsonValue],
    prompt: str | None = None,
    context: str | None = None,
    name: str | None = None,
    category: str | None = None,
) -> ExtractedRecord:
    """Build a record of code that the front end accepts.

    `declarations` are those of the text, at least one; `category` is that of the hardest when it is not given.
    """
    hardest = hardest_construct(declarations)
    counts = Counter(construct_of(declaration).name for declaration in declarations)
    return ExtractedRecord(
        source=source,
        lane=Lane.CODEGEN,
        text=text,
        text_sha256=hashlib.sha256(text.encode()).hexdigest(),
        verdict="accepted",
        prompt=prompt,
        context=context,
        name=name,
        category=category or hardest.name,
        constructs=dict(sorted(counts.items())),
        difficulty=hardest.difficulty,
        weight=weight,
        metadata=metadata,
    )


def hardest_construct(declarations: Sequence[Declaration]) -> Construct:
    """Return the construct of the hardest declaration, which gives a text its difficulty; of equals the first."""
    return max((construct_of(declaration) for declaration in declarations), key=lambda c: c.difficulty)
