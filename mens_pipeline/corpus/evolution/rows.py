"""An answer that was kept, as a row of training data."""

import hashlib
from typing import Final

from mens_pipeline.corpus.evolution.examine import Candidate
from mens_pipeline.corpus.evolution.seeds import digest_of_pair
from mens_pipeline.corpus.schema.records import Source, SourceKind
from mens_pipeline.corpus.schema.training_pair import Lineage, TrainingPair
from mens_pipeline.language import Mode, difficulty
from mens_pipeline.language.ast.declarations import Module

_TESTED: Final = 4
_UNTESTED: Final = 3


def evolved_row(  # noqa: PLR0913 - all that a row says of where it comes from
    candidate: Candidate, module: Module, generation: int, *, generator: tuple[str, str], seed: int, is_tested: bool
) -> TrainingPair:
    """Build the training row of a completion that was kept.

    It stands where the first of its ancestors stands: whoever holds that file out holds this row out as well, and
    whoever caps what a file or template may give counts it.

    Args:
        candidate: The answer.
        module: Its syntax tree.
        generation: 1 for a row whose parent nobody evolved.
        generator: Name and digest of the model.
        seed: Of the run.
        is_tested: Whether it has tests, which pass.
    """
    parent = candidate.parent
    program = candidate.program.rstrip() + "\n"
    root_kind = parent.lineage.root_kind if parent.lineage is not None else parent.source and parent.source.kind
    return TrainingPair(
        prompt=candidate.instruction,
        response=program,
        category=candidate.construct,
        rating=_TESTED if is_tested else _UNTESTED,
        task_family="evolved",
        difficulty=difficulty(module),
        template=parent.template,
        source=_source(parent, program, candidate.mode),
        lineage=Lineage(
            parent=digest_of_pair(parent),
            operator=candidate.evolution.operator,
            generation=generation,
            generator=generator[0],
            generator_digest=generator[1],
            seed=seed,
            root_kind=root_kind,
        ),
    )


def _source(parent: TrainingPair, program: str, mode: Mode) -> Source:
    blob = hashlib.sha256(program.encode()).hexdigest()
    suffix = ".vox.ui" if mode is Mode.UI else ".vox"
    path = parent.source.path if parent.source is not None else f"evolved/{digest_of_pair(parent)[:16]}{suffix}"
    lines = (1, program.count("\n"))
    return Source(path=path, blob=blob, span=(0, len(program)), lines=lines, kind=SourceKind.EVOLVED)
