"""Simulate models that lose a little with each promotion: `python -m mens_pipeline_tests.bench.decline` says when.

The gates are the real ones, with the thresholds of policy `ci`; what a model writes is drawn.
"""

import sys
from random import Random
from typing import Final

from mens_pipeline.evaluation.results import EarlierComparison, EvalResults
from mens_pipeline.evaluation.statistics import Paired, compare_paired
from mens_pipeline.promotion.gate import GateInputs, decide
from mens_pipeline.promotion.policy import GateName, load_gate_policy
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.evaluation.scored import GOOD, evaluation

NUM_BENCHMARK: Final = 86
_SIZES: Final = (*[1] * 7, *[2] * 3, 3, *[4] * 3, 5, 7, 7, 8, 10, 10, 10, 11, 11)
"""Held-out prompts of each file; those of the benchmark stand for themselves."""
_MEANS: Final = (0.85, 0.40)
"""Shares that parse, and of those, that pass."""
_DISAGREEMENT: Final = 0.1
"""Share of the tasks on which two models of one recipe differ."""
_THRESHOLDS: Final = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml").thresholds("ci")
_KEY: Final = "c" * 64
_RESULTS: Final = evaluation(champion=(GOOD,) * 3).results

_Outcomes = list[tuple[bool, bool]]
"""Of each task: whether the completion parses, whether it passes."""


def caught_at(random: Random, loss: float, num_promotions: int, *, is_heldout_kept: bool = True) -> list[GateName]:
    """Promote model after model, each of which parses less by a share `loss` of all tasks, until a gate refuses one.

    Unless `is_heldout_kept`, each is asked other held-out prompts, and only those of the benchmark are the same.

    Returns:
        What the gates of drops said of each model, `SUITE_SIZE` for nothing; the last one alone may be refused.
    """
    files = [f"h{number}" for number, size in enumerate(_SIZES) for _ in range(size)]
    kept = files * is_heldout_kept + [f"b{number}" for number in range(NUM_BENCHMARK)]
    chances = [tuple(_chance(random, mean) for mean in _MEANS) for _ in kept]
    champions, said = [_draw(random, chances, 0.0)], list[GateName]()
    for number in range(1, num_promotions + 1):
        candidate = _draw(random, chances, loss * number / _MEANS[0])
        said.append(_refused_by(champions[-_THRESHOLDS.decline_promotions - 1 :], candidate, kept))
        champions.append(candidate)
        if said[-1] is not GateName.SUITE_SIZE:
            break
    return said


def _chance(random: Random, mean: float) -> float:
    """Draw how sure a task is: about so many are done, and two models differ on a tenth."""
    variance = mean - _DISAGREEMENT / 2 - mean**2
    weight = mean * (1 - mean) / variance - 1
    return random.betavariate(mean * weight, (1 - mean) * weight)


def _draw(random: Random, chances: list[tuple[float, ...]], lost: float) -> _Outcomes:
    parses = [random.random() < chance[0] * (1 - lost) for chance in chances]
    return [(does, does and random.random() < chance[1]) for does, chance in zip(parses, chances, strict=True)]


def _refused_by(champions: list[_Outcomes], candidate: _Outcomes, files: list[str]) -> GateName:
    def compare(first: _Outcomes) -> dict[str, Paired]:
        parse, passes = (compare_paired([o[n] for o in first], [o[n] for o in candidate], files) for n in range(2))
        return {"parse_difference": parse, "pass_difference": passes}

    used = _RESULTS.champion
    assert used is not None
    results: EvalResults = _RESULTS.model_copy(update={"champion": used.model_copy(update=compare(champions[-1]))})
    if champions[:-1]:
        best = max(champions[:-1], key=lambda one: sum(map(sum, one)))  # that the candidate lost most against
        earlier = EarlierComparison(**{**dict(used), **compare(best)}, promoted_unix=0, num_champions=1)
        results = results.model_copy(update={"earlier": earlier})
    inputs = GateInputs(results, "", None, "", _KEY, is_benchmark_asked=True)
    refused = {outcome.name for outcome in decide(inputs, _THRESHOLDS) if not outcome.passed}
    return next((name for name in (GateName.REGRESSION, GateName.DECLINE) if name in refused), GateName.SUITE_SIZE)


def main() -> None:
    """Print how many models are caught by how many promotions, and how many evaluations raise a false alarm."""
    num_series = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    for is_heldout_kept in (True, False):
        random = Random(1)  # noqa: S311 - no secret
        shared = "held-out prompts and benchmark" if is_heldout_kept else "the benchmark alone"
        for loss in (0.02, 0.01, 0.0):
            series = [caught_at(random, loss, 12, is_heldout_kept=is_heldout_kept) for _ in range(num_series)]
            caught = [len(said) for said in series if said[-1] is not GateName.SUITE_SIZE]
            within = ", ".join(
                f"{most}: {100 * sum(n <= most for n in caught) / num_series:.0f} %" for most in (3, 5, 7, 10)
            )
            alone = sum(said[-1] is GateName.REGRESSION for said in series)
            per = 100 * len(caught) / sum(map(len, series))
            sys.stdout.write(
                f"{shared}, {100 * loss:.0f} points a promotion: caught within {within}; {per:.2f} % of evaluations "
                f"refused, {alone} of {len(caught)} by the champion in use\n"
            )


if __name__ == "__main__":
    main()
