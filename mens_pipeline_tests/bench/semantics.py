"""Measure how many mistakes made on purpose are found by names and types, and what finding them costs.

The right programs are the golden ones and the reference solutions of HumanEval-Vox. With files of judged answers,
such as the `trial_answers.jsonl` of two trials, it says instead how many run-time errors of a model are found
beforehand, and whether those of the second file are fewer:
`python -m mens_pipeline_tests.bench.semantics [ANSWERS [ANSWERS]]`.
"""

import sys
from collections import Counter
from pathlib import Path
from time import perf_counter

from mens_pipeline.evaluation.results import ScoredCompletion
from mens_pipeline.evaluation.statistics import compare_paired
from mens_pipeline.language import analyze, mode_of
from mens_pipeline.language.interpreter import ErrorClass
from mens_pipeline.language.semantics import semantic_diagnostics
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.bench.machine import machine_name
from mens_pipeline_tests.language.examples import golden_programs
from mens_pipeline_tests.language.semantics.mutations import KINDS, mutants

_MUTANTS = 20_000
_SEED = 0
_REPEATS = 5
_SOLUTIONS = PROJECT_ROOT / "data" / "heldout_bench" / "humaneval_vox" / "solutions"


def main() -> None:
    """Measure and print."""
    if files := [Path(file) for file in sys.argv[1:]]:
        _completions(files)
        return
    programs = golden_programs() | {path.name: path.read_text("utf-8") for path in sorted(_SOLUTIONS.glob("*.vox"))}
    made: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for mutant in mutants(programs, mode_of, _MUTANTS, _SEED):
        made[mutant.kind] += 1
        found[mutant.kind] += bool(semantic_diagnostics(mutant.module, mutant.source))
    print(f"{'mistake':<28}{'made':>8}{'found':>8}{'share':>9}")
    for kind in KINDS:
        print(f"{kind:<28}{made[kind]:>8,}{found[kind]:>8,}{found[kind] / made[kind]:>9.1%}")
    print(f"{'all':<28}{made.total():>8,}{found.total():>8,}{found.total() / made.total():>9.1%}")
    _speed(programs)


def _completions(files: list[Path]) -> None:
    """Say of each file how many run-time errors were found beforehand, and how the last differs from the first."""
    ends: list[dict[str, bool]] = []
    for file in files:
        completions = (ScoredCompletion.model_validate_json(line) for line in file.open(encoding="utf-8"))
        scored = {one.score.task: one.score for one in completions if one.score.execution is not None}
        wrong = {
            name: one.execution is not None and one.execution.error_class is ErrorClass.RUNTIME
            for name, one in scored.items()
        }
        ends.append(wrong)
        found = sum(not scored[name].resolves for name, is_wrong in wrong.items() if is_wrong)
        print(f"{file}: {sum(wrong.values())}/{len(wrong)} end in a run-time error, {found} of them found beforehand")
    both = sorted(ends[0].keys() & ends[-1].keys())
    difference = compare_paired([ends[0][name] for name in both], [ends[-1][name] for name in both])
    print(
        f"of {difference.num_tasks} tasks {difference.only_first} end so in the first file alone, "
        f"{difference.only_second} in the last alone, p = {difference.p_value:.3f}"
    )


def _speed(programs: dict[str, str]) -> None:
    parses, walks = [], []
    for _ in range(_REPEATS):
        begin = perf_counter()
        modules = [(analyze(source, mode_of(name)).module, source) for name, source in programs.items()]
        middle = perf_counter()
        for module, source in modules:
            if module is not None:
                semantic_diagnostics(module, source)
        parses.append(middle - begin)
        walks.append(perf_counter() - middle)
    megabytes = sum(len(source.encode()) for source in programs.values()) / 1e6
    print(f"{machine_name()}, one core, best of {_REPEATS}: parsing {megabytes / min(parses):.2f} MB/s,", end=" ")
    print(f"names and types {megabytes / min(walks):.2f} MB/s, {min(walks) / min(parses):.2f} times as long")


if __name__ == "__main__":
    main()
