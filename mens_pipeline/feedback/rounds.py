"""A round of learning from evaluated completions: what it made, how that compares with before, whether it is taken."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS, SCORED_COMPLETIONS, EvalResults, ScoredCompletion
from mens_pipeline.evaluation.scores import Score, differences_of
from mens_pipeline.evaluation.statistics import Paired, p_text
from mens_pipeline.evaluation.tasks import FAMILIES
from mens_pipeline.feedback.config import FeedbackConfig, Method
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.stage import Helper, Params, Stage
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline.storage.validation import Strict

KIND: Final = "feedback_round"
ROUND: Final = "round.json"
_FIGURES: Final = ("stop_rate", "parse_rate", "resolve_rate", "pass_at_1", "test_rate")


class Arm(Strict):
    """Result of one method in a round."""

    method: Method
    adapter: str = Field(description="Its key in the store.")
    evaluation: str = Field(description="The key of its evaluation.")
    minutes: float = Field(ge=0, description="Of completing and training; of a control, of training.")
    verdict: str = Field(description="Of the gate: passed, failed, undecided.")
    figures: dict[str, str] = Field(description="Figure -> as people read it, on what never trained.")
    parse_difference: Paired = Field(description="The adapter of the samples first, this one second; first samples.")
    pass_difference: Paired
    test_difference: Paired = Field(description="Over the prompts that have hidden tests.")

    def worse(self, p_value: float) -> str | None:
        """Return the figure by which it is worse than the adapter before; None where it is not known to be."""
        drops = {"parse rate": self.parse_difference, "pass@1": self.pass_difference}
        for name, drop in drops.items():
            if drop.difference < 0 and drop.p_value < p_value:
                return f"{name} {100 * drop.difference:+.1f} points on {drop.num_tasks} tasks ({p_text(drop.p_value)})"
        return None


class Round(Strict):
    """One round."""

    number: int = Field(ge=1)
    start: str = Field(description="The key of the adapter that wrote the samples.")
    completions: dict[str, Any] = Field(description="What came of its completions to training prompts.")
    before: dict[str, str] = Field(description="Its figures, on what never trained.")
    arms: tuple[Arm, ...] = Field(min_length=1, description="The method first, the control behind it, if there is one.")
    worse: str | None = Field(description="Why what the method made is not taken; null where it is.")


def figures_of(evaluation: Path) -> dict[str, str]:
    """Return the figures of an adapter that a round is looked at by."""
    results = EvalResults.model_validate_json((evaluation / RESULTS).read_text(encoding="utf-8"))
    overall = results.adapter.overall
    figures = {name.replace("_", " "): getattr(overall, name).short for name in _FIGURES}
    if results.best_of is not None:
        figures[f"best-of-{results.best_of.n}"] = results.best_of.overall.pass_rate.short
    for suite in FAMILIES:
        if suite in results.families:
            figures[f"hidden tests, {suite.replace('_', ' ')}"] = results.families[suite].test_rate.short
    return figures


def arm_of(  # noqa: PLR0913 - what is told of it
    method: Method,
    adapter: str,
    evaluation: Path,
    before: Path,
    *,
    minutes: float,
    verdict: str,
    files: Mapping[str, str],
) -> Arm:
    """Compare what a method made with the adapter before, on the prompts that both completed.

    A prompt that stands in no file of `files` stands for itself. Refuse (`RefusedError`) another eval suite.
    """
    first, second = _first_samples(before), _first_samples(evaluation)
    _refuse_another_eval_suite(before, evaluation)
    both = [(first[name], second[name]) for name in second if name in first]
    return Arm(
        method=method,
        adapter=adapter,
        evaluation=evaluation.name,
        minutes=minutes,
        verdict=verdict,
        figures=figures_of(evaluation),
        **differences_of(both, files),
    )


def _first_samples(evaluation: Path) -> dict[str, Score]:
    completions = read_models(evaluation / SCORED_COMPLETIONS, ScoredCompletion)
    own = (
        completion for completion in completions if completion.model == "adapter" and completion.suite not in FAMILIES
    )
    return {completion.score.task: completion.score for completion in own if completion.score.sample == 0}


def _refuse_another_eval_suite(before: Path, after: Path) -> None:
    subjects = [json.loads((folder / RESULTS).read_text(encoding="utf-8"))["subject"] for folder in (before, after)]
    for field in ("heldout_sha256", "benchmark_sha256"):
        found = [str(subject[field])[:12] for subject in subjects]
        if found[0] != found[1]:
            advice = "Evaluate the adapter that completed them once more: mens run."
            raise RefusedError(f"{after}: {field} is {found[1]}, that of the adapter before is {found[0]}. {advice}")


class RoundParams(Params):
    """Parameters of a round, and the launcher that runs it."""

    number: int
    start: str
    config: FeedbackConfig
    minutes: float | None
    seed: int | None
    has_control: bool
    max_regression_p: float
    run: Helper[Callable[[], Round]]


def write_round(folder: Path, params: RoundParams) -> dict[str, Any]:
    """Run a round, and write what it made into `round.json`."""
    made = params.run()
    (folder / ROUND).write_text(made.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return {"number": made.number}


STAGE: Final = Stage(KIND, (__name__,), write_round)


def kept_round(store: ArtifactStore, params: RoundParams) -> tuple[Round, bool]:
    """Return a round and whether it was run before, or else run and keep it."""
    artifact, reused = STAGE.build(store, params)
    return Round.model_validate_json((artifact.path / ROUND).read_text(encoding="utf-8")), reused


def lines_of(done: Round) -> Iterator[str]:
    """Yield a round as people read it: completions, a table of figures, and what becomes of it."""
    details = done.completions
    yield f"round {done.number}: {details['num_prompts']} training prompts, {details['num_samples']} completions"
    tiers = ", ".join(f"{name} {count}" for name, count in details["tiers"].items())
    yield f"  tiers      {tiers}; mean reward {details['mean_reward']:.3f}, ended {100 * details['stop_rate']:.0f} %"
    by = (
        f"first completion {details['num_solved_by_first']}, best-of-{details['num_samples'] // details['num_prompts']}"
    )
    yield f"  prompts    solved by the {by} {details['num_solved_by_chosen']}, any {details['num_solved']}"
    yield f"  learnt     {details['num_accepted']} accepted completions"
    columns = [("before", done.before), *((str(arm.method), arm.figures) for arm in done.arms)]
    yield "  " + f"{'':<28}" + "".join(f"{name:<20}" for name, _ in columns).rstrip()
    for figure in done.before:
        yield "  " + f"{figure:<28}" + "".join(f"{column.get(figure, '-'):<20}" for _, column in columns).rstrip()
    for arm in done.arms:
        changes = {
            "parse rate": arm.parse_difference,
            "pass@1": arm.pass_difference,
            "hidden tests": arm.test_difference,
        }
        differences = [f"{name} {100 * d.difference:+.1f} points ({p_text(d.p_value)})" for name, d in changes.items()]
        yield f"  {arm.method:<10} {arm.minutes:.1f} min, gate {arm.verdict}; {', '.join(differences)}"
    yield f"  not taken: {done.worse}" if done.worse is not None else "  taken: the next round begins with it"
