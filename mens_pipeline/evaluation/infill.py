"""Holes in held-out programs, and the scores of the pieces that models write into them.

The sampling unit of all intervals is the file, since holes of one file are correlated.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import accumulate
from math import exp
from os.path import commonprefix
from pathlib import Path
from random import Random
from typing import Final

from mens_pipeline.corpus.infill.holes import draw_holes
from mens_pipeline.corpus.infill.views import draw_view
from mens_pipeline.corpus.schema.records import HoleKind, SourceKind, TrainingPair, parsed_code, read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.baselines import NgramModel
from mens_pipeline.evaluation.judge import FEATURES, errors_beside
from mens_pipeline.evaluation.results import Abstention, InfillModel, InfillResults, InsertRates, InsertScore
from mens_pipeline.evaluation.statistics import Paired, Rate, compare_paired, mean_rate
from mens_pipeline.inference.generation import Completion, Decoding, EvaluationConfig, Request, Syntax, as_served
from mens_pipeline.language import Mode, analyze
from mens_pipeline.language.interpreter import Sandbox
from mens_pipeline.language.surroundings import read_surroundings
from mens_pipeline.models.adapter import TrainingManifest
from mens_pipeline.storage.store import digest_of, key_of

_SEED: Final = "infill suite"
_AROUND: Final = 160  # characters on each side of a hole to store with its score, for people
_VIEW_SHARE: Final = 0.3
"""Share of the holes with only an editor's window of text, or with an unfinished line above."""
_HOLES_PER_SILENT: Final = 4  # holes for each cursor with nothing to write
_SILENT: Final[Mapping[str, re.Pattern[str]]] = {
    "a finished line": re.compile(r"^[ \t]+\S.*[\w)\]}\"]()$", re.MULTILINE),
    "a comment": re.compile(r"//.*?\w()(?= \w)"),
    "a string": re.compile(r'(?<=")[^"\n{}]*?\w()(?= \w[^"\n]*")'),
    "the end of the file": re.compile(r"\n()\Z"),
}
"""Kinds of cursors with nothing to write; the empty group of the pattern is the cursor."""
INFILL: Final = "infill"
LINE_MODELS: Final[Mapping[InfillModel, str]] = {"left_to_right": "infill_left_to_right", "base": "infill_base"}
"""Models that see no suffix -> names of their generations."""
CHAMPION: Final = "infill_champion"


@dataclass(frozen=True)
class InfillTask:
    """A hole in a held-out program, or in a program from the git history of a workspace.

    `file` is the sampling unit: the source file, or the commit in a history. `has_tests` tells whether the program has
    tests and passes them. `view` is the text before and after the hole that a model sees; None: all of it.
    """

    id: str
    file: str
    kind: HoleKind
    prefix: str
    middle: str
    suffix: str
    mode: Mode
    has_tests: bool
    view: tuple[str, str] | None = None

    def insert(self, piece: str) -> str:
        """Return the program with a piece in the hole."""
        return self.prefix + piece + self.suffix

    @cached_property
    def is_finished(self) -> bool:
        """Whether the server suggests nothing at this cursor, whatever the model writes."""
        return read_surroundings(self.prefix, self.suffix, self.mode).is_finished

    @cached_property
    def known_errors(self) -> int:
        """Number of errors in names and types of the unchanged program."""
        return len(errors_beside("", self.insert(self.middle), self.mode, frozenset()))

    def request(self, window: int, *, is_prefix_alone: bool = False) -> Request:
        """Return the request to a model that sees `window` tokens around the hole."""
        suffix = None if is_prefix_alone else self.suffix
        return Request(task=self.id, prompt=self.prefix, mode=self.mode, suffix=suffix, window=window, view=self.view)


def infill_tasks(
    pairs: Iterable[TrainingPair], number: int, fits: Callable[[str], bool] = lambda _text: True
) -> tuple[InfillTask, ...]:
    """Cut up to `number` holes into held-out programs, spread evenly over the files; the same holes every time.

    Only whole programs get holes, and copies of one only once. `fits` tells whether a piece fits into a completion.
    """
    programs = _find_programs(pairs)
    tested = _pass_their_tests([source for (_, source), mode in programs.items() if mode is Mode.SOURCE])
    per_file = -(-number // max(1, len(programs)))
    tasks: list[InfillTask] = []
    for (path, source), mode in sorted(programs.items()):
        module = analyze(source, mode).module
        assert module is not None, "accepted above"  # noqa: S101 - an internal invariant
        dice = Random(f"{_SEED}:{hashlib.sha256(source.encode()).hexdigest()}")  # noqa: S311 - a reproducible draw
        for hole in draw_holes(source, module, per_file, dice):
            middle = source[hole.start : hole.end]
            if fits(middle):
                before, after = source[: hole.start], source[hole.end :]
                view = draw_view(before, after, _VIEW_SHARE, dice)
                task = f"infill/{len(tasks):04}"
                is_tested = source in tested
                tasks.append(InfillTask(task, path, hole.kind, before, middle, after, mode, is_tested, view))
    # Drop surplus holes at random, not from the last files only.
    kept = sorted(tasks, key=lambda task: hashlib.sha256(task.id.encode()).digest())[:number]
    return tuple(sorted(kept, key=lambda task: task.id))


def _find_programs(pairs: Iterable[TrainingPair]) -> dict[tuple[str, str], Mode]:
    programs: dict[tuple[str, str], Mode] = {}
    for pair in pairs:
        is_whole = pair.source is not None and pair.source.kind is SourceKind.VOX_FILE
        code = parsed_code(pair) if is_whole else None
        if code is not None and pair.source is not None and analyze(*code).ok:
            programs.setdefault((pair.source.path, code[0]), code[1])
    return programs


def draw_silent(program: str, dice: Random) -> Iterator[tuple[str, int]]:
    """Draw one cursor of each kind with nothing to write; yield the kind and the offset in characters."""
    for kind, pattern in _SILENT.items():
        if places := [found.start(1) for found in pattern.finditer(program)]:
            yield kind, dice.choice(places)


def silent_tasks(pairs: Iterable[TrainingPair], number: int) -> tuple[InfillTask, ...]:
    """Draw at most `number` cursors in held-out programs with nothing to write; the same cursors every time."""
    tasks: list[InfillTask] = []
    for (path, source), mode in sorted(_find_programs(pairs).items()):
        dice = Random(f"{_SEED}:{hashlib.sha256(source.encode()).hexdigest()}")  # noqa: S311 - a reproducible draw
        for _, place in draw_silent(source, dice):
            task = f"silent/{len(tasks):04}"
            tasks.append(
                InfillTask(task, path, HoleKind.LINE, source[:place], "", source[place:], mode, has_tests=False)
            )
    kept = sorted(tasks, key=lambda task: hashlib.sha256(task.id.encode()).digest())[:number]
    return tuple(sorted(kept, key=lambda task: task.id))


def _pass_their_tests(programs: Sequence[str]) -> frozenset[str]:
    with Sandbox(2, features=FEATURES) as sandbox:
        reports = zip(programs, sandbox.map(programs), strict=True)
        return frozenset(program for program, report in reports if report.passed)


@dataclass(frozen=True)
class Holes:
    """The holes for an adapter to fill: `tasks` are all of them, `lines` those for models that see no suffix.

    `window` is the number of tokens around a cursor in training. `ngram` are the completions of an n-gram model of the
    train set, for all line holes. `silent` are cursors with nothing to write. Only the adapter gets second tries.
    """

    tasks: tuple[InfillTask, ...]
    lines: tuple[InfillTask, ...]
    window: int
    decoding: Decoding
    ngram: tuple[Completion, ...]
    silent: tuple[InfillTask, ...] = ()

    @property
    def cursors(self) -> tuple[InfillTask, ...]:
        """Holes, and those silent cursors that the server does not settle without a model."""
        return (*self.tasks, *(task for task in self.silent if not task.is_finished))

    @property
    def digest(self) -> str:
        """SHA-256 of the holes and the decoding."""
        shown = (*self.tasks, *self.silent)
        holes = [[task.file, str(task.kind), len(task.prefix), task.middle, task.view] for task in shown]
        asked = {"holes": holes, "lines": [task.id for task in self.lines], "window": self.window}
        ngram = [completion.text for completion in self.ngram]
        return key_of({**asked, "ngram": ngram, "decoding": self.decoding.model_dump(mode="json")})


def find_holes(
    heldout: Path, train: Path, manifest: TrainingManifest, config: EvaluationConfig, fits: Callable[[str], bool]
) -> Holes | None:
    """Return the holes for an adapter; None if none are requested or found, or it was not trained on holes.

    The n-gram model needs the train set of the adapter, `train`; `RefusedError` if it is missing or was changed.
    """
    if not config.infill_holes or not manifest.is_taught:
        return None
    tasks = infill_tasks(read_pairs(heldout), config.infill_holes, fits)
    lines = tuple(task for task in tasks if task.kind is HoleKind.LINE)[: config.infill_lines]
    holes = build_holes(tasks, lines, train, manifest, config) if tasks else None
    silent = silent_tasks(read_pairs(heldout), len(tasks) // _HOLES_PER_SILENT)
    return replace(holes, silent=silent) if holes is not None else None


def build_holes(
    tasks: tuple[InfillTask, ...],
    lines: tuple[InfillTask, ...],
    train: Path,
    manifest: TrainingManifest,
    config: EvaluationConfig,
) -> Holes:
    """Complete line holes with an n-gram model; `RefusedError` if the train set is missing or was changed."""
    if not train.is_file() or digest_of(train) != manifest.train_sha256:
        found = "changed" if train.is_file() else "gone"
        advice = "Restore it, or set infill_holes: 0 in config/evaluation.yaml."
        raise RefusedError(f"{train}: the train set of this run is {found}; the n-gram is built from it. {advice}")
    model = NgramModel(dict.fromkeys(pair.response for pair in read_pairs(train) if pair.infill is None))
    texts = ((task, model.complete_line(task.prefix)) for task in tasks if task.kind is HoleKind.LINE)
    ngram = tuple(Completion(task=task.id, sample=0, text=text, num_tokens=1, stopped=True) for task, text in texts)
    return Holes(tasks, lines, manifest.recipe.infill_window, infill_decoding(config), ngram)


def infill_decoding(config: EvaluationConfig) -> Decoding:
    """Return the decoding of pieces: greedy, with a constrained second try if a piece does not parse."""
    return Decoding(
        max_new_tokens=config.infill_tokens, syntax=Syntax.FALLBACK, batch_tokens=config.batch_tokens, seed=config.seed
    )


def score_holes(
    holes: Holes, completions: Mapping[str, Sequence[Completion]], champion: str | None
) -> tuple[InfillResults, list[InsertScore]]:
    """Score the pieces of all models; `champion` is the key of the adapter in use, if any.

    `completions` maps names of generations to completions, with second tries of the adapter last.
    """
    places = {task.id: task for task in holes.silent}
    own = [each for each in completions.get(INFILL, ()) if each.task not in places]
    at_silent = [each for each in completions.get(INFILL, ()) if each.task in places and not each.constrained]
    silent = score_inserts("adapter", holes.silent, [each for each in at_silent if each.text.strip()])
    quiet = [task.file for task in holes.silent if task.id not in {score.task for score in silent}]
    scores: dict[InfillModel, list[InsertScore]] = {
        "adapter": score_inserts("adapter", holes.tasks, [each for each in own if not each.constrained]),
        "served": [each for each in score_inserts("served", holes.tasks, as_served(own)) if each.parses],
        "ngram": score_inserts("ngram", holes.tasks, holes.ngram),
    }
    for model, name in LINE_MODELS.items():
        scores[model] = score_inserts(model, holes.lines, completions.get(name, ()))
    if champion is not None:
        first = [each for each in completions.get(CHAMPION, ()) if not each.constrained]
        scores["champion"] = score_inserts("champion", holes.tasks, first)
    results = infill_results(scores, holes.window, champion, Silence(tuple(silent), tuple(quiet)))
    return results, [score for some in scores.values() for score in some]


def score_inserts(
    model: InfillModel, tasks: Sequence[InfillTask], completions: Iterable[Completion]
) -> list[InsertScore]:
    """Score pieces of a model; programs that parse and have tests are run in a sandbox."""
    by_id = {task.id: task for task in tasks}
    scores = [_score(model, by_id[each.task], each) for each in completions]
    tested = [place for place, score in enumerate(scores) if score.parses and by_id[score.task].has_tests]
    programs = [by_id[scores[place].task].insert(scores[place].piece) for place in tested]
    if programs:
        with Sandbox(2, features=FEATURES) as sandbox:
            for place, report in zip(tested, sandbox.map(programs), strict=True):
                scores[place] = scores[place].model_copy(update={"passes_tests": report.passed})
    return scores


def _score(model: InfillModel, task: InfillTask, completion: Completion) -> InsertScore:
    is_line = model in {*LINE_MODELS, "ngram"}
    piece = completion.text.split("\n", 1)[0] if is_line else completion.text
    parses = analyze(task.insert(piece), task.mode).ok
    resolves = parses and len(errors_beside("", task.insert(piece), task.mode, frozenset())) <= task.known_errors
    return InsertScore(
        model=model,
        task=task.id,
        kind=str(task.kind),
        file=task.file,
        piece=piece,
        exact=piece.split() == task.middle.split(),
        kept=len(commonprefix([piece, task.middle])) / max(1, len(task.middle)),  # noqa: RUF071 - of texts
        similarity=SequenceMatcher(None, piece, task.middle, autojunk=False).ratio(),
        parses=parses,
        resolves=resolves,
        passes_tests=False if task.has_tests else None,
        stopped=completion.stopped or (is_line and "\n" in completion.text),
        likelihood=completion.likelihood,
        before=task.prefix[-_AROUND:],
        reference=task.middle,
        after=task.suffix[:_AROUND],
    )


def insert_rates(scores: Sequence[InsertScore]) -> InsertRates:
    """Compute the figures over some holes."""

    def rate(share: Callable[[InsertScore], bool], some: Sequence[InsertScore] = scores) -> Rate:
        return mean_rate([float(share(score)) for score in some], [score.file for score in some])

    return InsertRates(
        num_holes=len(scores),
        exact=rate(lambda score: score.exact),
        parses=rate(lambda score: score.parses),
        resolves=rate(lambda score: score.resolves),
        tests=rate(lambda score: bool(score.passes_tests), [s for s in scores if s.passes_tests is not None]),
        stopped=rate(lambda score: score.stopped),
        kept=sum(score.kept for score in scores) / max(1, len(scores)),
        similarity=sum(score.similarity for score in scores) / max(1, len(scores)),
    )


@dataclass(frozen=True, slots=True)
class Silence:
    """Results at cursors with nothing to write: the adapter's pieces, and the files of cursors without a piece."""

    spoken: tuple[InsertScore, ...] = ()
    quiet: tuple[str, ...] = ()

    def measure(self, threshold: float, files: frozenset[str]) -> Rate | None:
        """Return the share of cursors in some files without a shown piece; None if they have no such cursor."""
        spoken = [(float(not _is_sent(score, threshold)), score.file) for score in self.spoken if score.file in files]
        found = [*spoken, *((1.0, file) for file in self.quiet if file in files)]
        return mean_rate([value for value, _ in found], [file for _, file in found]) if found else None


def infill_results(
    scores: Mapping[InfillModel, Sequence[InsertScore]],
    window: int,
    champion: str | None = None,
    silence: Silence = Silence(),
) -> InfillResults:
    """Compute the figures of all models, and compare the others with the adapter."""
    own = scores["adapter"]
    adapter = {score.task: score for score in own}
    shown = {score.task for score in scores.get("served", ())}

    def compare(others: Sequence[InsertScore]) -> Paired:
        both = [(other, adapter[other.task]) for other in others]
        return compare_paired([a.exact for a, _ in both], [b.exact for _, b in both], [a.file for a, _ in both])

    others = {name: some for name, some in scores.items() if name not in {"adapter", "served"} and some}
    return InfillResults(
        window=window,
        shown=mean_rate([float(score.task in shown) for score in own], [score.file for score in own]),
        models={name: rates_by_kind(some) for name, some in scores.items() if some},
        champion=champion,
        exact_difference={name: compare(some) for name, some in others.items()},
        abstention=choose_threshold(own, silence),
    )


def rates_by_kind(scores: Sequence[InsertScore]) -> dict[str, InsertRates]:
    """Compute the figures over all holes, and over each kind."""
    kinds = [str(kind) for kind in HoleKind if any(score.kind == kind for score in scores)]
    parts = {kind: insert_rates([score for score in scores if score.kind == kind]) for kind in kinds}
    return {"all": insert_rates(scores), **parts}


_LEAST: Final = 20  # fewest holes in each half of the files, and fewest pieces above a threshold
_EXACT_SHARE: Final = 0.5


def _is_sent(score: InsertScore, threshold: float) -> bool:
    return score.resolves and (score.likelihood or 0.0) >= threshold


def choose_threshold(scores: Sequence[InsertScore], silence: Silence = Silence()) -> Abstention | None:
    """Choose the lowest likelihood from which half of the shown pieces are exact, or else the median likelihood.

    Choose on half of the files, and measure on the others; None for too few holes. Pieces at silent cursors are wrong.
    """
    measured = [score for score in scores if score.likelihood is not None]
    files = sorted({score.file for score in measured}, key=lambda file: hashlib.sha256(file.encode()).digest())
    first = set(files[: len(files) // 2])
    chosen = sorted((s for s in measured if s.file in first), key=lambda score: -(score.likelihood or 0.0))
    rest = [score for score in measured if score.file not in first]
    if min(len(chosen), len(rest)) < _LEAST:
        return None
    spoken = [score for score in silence.spoken if score.file in first]
    sent = sorted((s for s in (*chosen, *spoken) if s.resolves), key=lambda score: -(score.likelihood or 0.0))
    num_exact = list(accumulate(int(score.exact) for score in sent))
    ends = [num for num in range(1, len(sent)) if sent[num].likelihood != sent[num - 1].likelihood]
    fitting = [num for num in (*ends, len(sent)) if num >= _LEAST and num_exact[num - 1] >= _EXACT_SHARE * num]
    threshold = (sent[fitting[-1] - 1] if fitting else chosen[len(chosen) // 2]).likelihood or 0.0
    shown = [score for score in rest if _is_sent(score, threshold)]
    if not shown:
        return None
    return Abstention(
        threshold=threshold,
        coverage=len(shown) / len(rest),
        exact_shown=insert_rates(shown).exact,
        exact_all=insert_rates(rest).exact,
        silent=silence.measure(threshold, frozenset(files) - first),
        calibration_error=_calibration_error(rest),
    )


def _calibration_error(scores: Sequence[InsertScore], num_bins: int = 10) -> float:
    """Compute the expected calibration error of the mean token probability, as an estimate of exactness.

    Source:
        Naeini, Cooper and Hauskrecht 2015, with bins of equal size.
    """
    ordered = sorted((exp(score.likelihood or 0.0), score.exact) for score in scores)
    error = 0.0
    for place in range(num_bins):
        part = ordered[place * len(ordered) // num_bins : (place + 1) * len(ordered) // num_bins]
        if part:
            stated = sum(chance for chance, _ in part) / len(part)
            error += abs(stated - sum(exact for _, exact in part) / len(part)) * len(part) / len(ordered)
    return error
