"""Each prompt with the completions of all models: what failed and why, and what passed."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mens_pipeline.corpus.schema.prompts import noun_of
from mens_pipeline.evaluation.results import ScoredCompletion
from mens_pipeline.evaluation.scores import Score
from mens_pipeline.language import SourceText

LONGEST: Final = 3_000
"""Most characters of a text on the page, so that a page of two hundred tasks stays below two megabytes."""

_PLACE: Final = re.compile(r"(\d+):(\d+): ")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A text in five pieces: the marked character, the line before and after it, and the text around that line.

    The mark may be the end of a line; without one, `before` is the whole text. `num_left_out` characters are not shown.
    """

    before: str
    line_before: str = ""
    marked: str = ""
    line_after: str = ""
    after: str = ""
    has_mark: bool = False
    num_left_out: int = 0


def excerpt(text: str, error: str | None = None) -> Excerpt:
    """Cut a text to an excerpt, around the place of its first error, if any: `line:column: code: message`."""
    place, lines = _PLACE.match(error or ""), text.split("\n")
    if place is None or int(place[1]) > len(lines):
        return Excerpt(text[:LONGEST], num_left_out=max(0, len(text) - LONGEST))
    number, column = int(place[1]), int(place[2])
    line = SourceText(text).line(number)
    start = sum(len(before) + 1 for before in lines[: number - 1])
    at, end = start + min(column, len(line)), start + len(line)
    first = max(0, min(at - LONGEST // 2, len(text) - LONGEST))
    last = min(len(text), first + LONGEST)
    return Excerpt(
        before=text[first : max(first, start)],
        line_before=text[max(first, start) : at],
        marked=text[at : min(at + 1, end, last)],
        line_after=text[min(at + 1, end, last) : min(end, last)],
        after=text[min(end, last) : last],
        has_mark=True,
        num_left_out=len(text) - (last - first),
    )


@dataclass(frozen=True, slots=True)
class CompletionView:
    """The first completion of a prompt by a model.

    Attributes:
        program: The evaluated program.
        faults: Why it does not pass, one sentence each.
        num_passed: Completions of the prompt that pass.
        num_samples: All completions of the prompt.
    """

    program: Excerpt
    faults: tuple[str, ...]
    num_tokens: int
    num_passed: int
    num_samples: int

    @property
    def passed(self) -> bool:
        """Whether it has no faults."""
        return not self.faults

    @property
    def word(self) -> str:
        """Outcome in a word or two; for several completions, how many pass."""
        if self.num_samples > 1:
            return f"{self.num_passed}/{self.num_samples} pass"
        return "passes" if self.passed else "fails"


@dataclass(frozen=True, slots=True)
class TaskView:
    """A prompt, with its first completion by each model."""

    id: str
    suite: str
    construct: str
    difficulty: str
    prompt: Excerpt
    reference: Excerpt
    completions: dict[str, CompletionView]


@dataclass(frozen=True, slots=True)
class Group:
    """Prompts with something in common; the completions of an open group are shown without a click."""

    title: str
    tasks: tuple[TaskView, ...]
    is_open: bool = True


def task_views(models: Mapping[str, Iterable[ScoredCompletion]]) -> tuple[TaskView, ...]:
    """Return the prompts of the first model, in order, with the completions of all models."""
    samples: dict[str, dict[str, list[ScoredCompletion]]] = {}
    for model, completions in models.items():
        for completion in completions:
            samples.setdefault(completion.score.task, {}).setdefault(model, []).append(completion)
    first = next(iter(models))
    return tuple(_task_view(task, found) for task, found in samples.items() if first in found)


def group_by_construct(tasks: Sequence[TaskView], *, is_open: bool) -> tuple[Group, ...]:
    """Group prompts by construct, the largest group first."""
    groups: dict[str, list[TaskView]] = {}
    for task in tasks:
        groups.setdefault(task.construct, []).append(task)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(Group(construct, tuple(some), is_open) for construct, some in ordered)


def group_by_passing(tasks: Sequence[TaskView]) -> tuple[Group, ...]:
    """Group prompts by the models that pass them: first if models differ, then if all fail, then if all pass."""
    groups: dict[tuple[str, ...], list[TaskView]] = {}
    for task in tasks:
        groups.setdefault(tuple(name for name, completion in task.completions.items() if completion.passed), []).append(
            task
        )
    all_pass = tuple(tasks[0].completions) if tasks else ()
    ordered = sorted(groups.items(), key=lambda item: (item[0] == all_pass, item[0] == (), -len(item[1]), item[0]))
    return tuple(
        Group(_who_passes(names, all_pass), tuple(some), is_open=names not in {(), all_pass}) for names, some in ordered
    )


def _who_passes(names: tuple[str, ...], everyone: tuple[str, ...]) -> str:
    if names == everyone:
        return "All pass"
    if not names:
        return "None passes"
    return f"Only {names[0]} passes" if len(names) == 1 else f"Only {' and '.join(names)} pass"


def find_faults(score: Score, asked: str) -> Iterator[str]:
    """Yield the reasons why a completion does not pass, one sentence each."""
    if score.empty:
        yield "The completion is empty."
    elif not score.parses:
        error = score.error or "it is not Vox"
        yield _format_place(error) if error[0].isdecimal() else f"The front end rejects it: {error}."
    if score.refusal:
        yield "It refuses the request, and writes no program."
    if not score.stopped:
        # For a completion by another program, the number of tokens is unknown.
        yield f"It did not end within {score.num_tokens} tokens." if score.num_tokens else "It was cut off."
    if score.parses and not score.has_construct:
        found = ", ".join(map(noun_of, score.constructs))
        yield f"Expected {noun_of(asked)}; it declares {found}."
    elif score.parses and score.has_name is False:
        yield "Its declaration does not have the requested name."
    yield from score.unmet
    if score.stub:
        yield "It has a placeholder in place of code, or a function with a return type and no body."
    execution = score.execution
    if execution is not None and not execution.passed:
        passed = f"{execution.num_passed}/{execution.num_tests} hidden tests pass"
        yield f"It was run: {passed} ({execution.error_class}). {execution.message}".strip()
    if score.semantic_error is not None and not score.passed:
        yield _format_place(score.semantic_error)


def _format_place(error: str) -> str:
    line, _, rest = error.partition(":")
    column, _, message = rest.partition(": ")
    return f"Line {line}, column {int(column) + 1}: {message.partition(': ')[2]} ({message.partition(': ')[0]})"


def _task_view(task: str, models: Mapping[str, Sequence[ScoredCompletion]]) -> TaskView:
    first = next(iter(models.values()))[0]
    return TaskView(
        id=task,
        suite=first.suite,
        construct=first.asked,
        difficulty=first.difficulty,
        prompt=excerpt(first.prompt),
        reference=excerpt(first.reference),
        completions={name: _completion_view(samples) for name, samples in models.items()},
    )


def _completion_view(samples: Sequence[ScoredCompletion]) -> CompletionView:
    first = min(samples, key=lambda completion: completion.score.sample)
    return CompletionView(
        program=excerpt(first.score.program, first.score.error),
        faults=tuple(find_faults(first.score, first.asked)),
        num_tokens=first.score.num_tokens,
        num_passed=sum(completion.score.passed for completion in samples),
        num_samples=len(samples),
    )
