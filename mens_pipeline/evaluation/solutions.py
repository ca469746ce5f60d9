"""Whether a reference solution solves its task: a task that its own solution fails judges nothing."""

from collections.abc import Iterator

from mens_pipeline.evaluation.manifest import TaskSpec
from mens_pipeline.evaluation.requirements import unmet
from mens_pipeline.language import Analysis, Mode, analyze, mode_of
from mens_pipeline.language.ast.functions import Test


def solution_mistakes(spec: TaskSpec, solution: str, tests: str | None) -> Iterator[str]:
    """Yield what is wrong with a task, as its own solution and tests show.

    Args:
        spec: The task.
        solution: Its reference solution.
        tests: Its hidden tests; None without.

    Yields:
        A sentence for each mistake: where, what was found, what was expected, what to do.
    """
    if not spec.requires and tests is None:
        yield "found neither `requires` nor `tests`, expected what tells a right answer from a wrong one. Add some."
    if (mode_of(spec.solution) is Mode.UI) != (spec.mode is Mode.UI):
        suffix = ".vox.ui" if spec.mode is Mode.UI else ".vox"
        yield f"{spec.solution}: found mode `{spec.mode}`, which expects a file name with `{suffix}`. Rename the file."
    yield from _answer_mistakes(spec, solution)
    if tests is not None:
        yield from _test_mistakes(spec, tests)


def _answer_mistakes(spec: TaskSpec, solution: str) -> Iterator[str]:
    analysis = analyze(solution, spec.mode)
    if analysis.module is None:
        yield f"{spec.solution}: {_rejection(analysis)}, expected Vox (mode `{spec.mode}`). Correct the solution."
        return
    for sentence in unmet(spec.requires, analysis.module, solution):
        yield f"{spec.solution}: {sentence} Correct the solution, or `requires`."
    for needle in spec.semantic_expected_contains:
        if needle not in solution:
            yield f"{spec.solution}: found no `{needle}`, which `semantic_expected_contains` expects. Correct either."


def _test_mistakes(spec: TaskSpec, tests: str) -> Iterator[str]:
    analysis = analyze(tests)
    if analysis.module is None:
        yield f"{spec.tests}: {_rejection(analysis)}, expected Vox. Correct the tests."
    elif not any(isinstance(declaration, Test) for declaration in analysis.module.declarations):
        yield f"{spec.tests}: found no `@test` function, expected at least one. Add one."


def _rejection(analysis: Analysis) -> str:
    first = analysis.errors[0]
    return f"found an error in line {first.start.line} ({first.message})"
