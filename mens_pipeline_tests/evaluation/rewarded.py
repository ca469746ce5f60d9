"""A task with hidden tests, as in a train set, and the reward of a completion."""

from mens_pipeline.corpus.schema.records import Source, SourceKind, TrainingPair
from mens_pipeline.evaluation.evaluate import score_completions
from mens_pipeline.evaluation.reward import Reward, compute_reward
from mens_pipeline.evaluation.tasks import Task, training_tasks
from mens_pipeline.inference.generation import Completion

PROMPT = (
    "In Vox, write `fn twice_or_zero(n: int) to int`. It returns 0 if `n` is negative, else twice `n`. "
    "For example, `twice_or_zero(3)` is 6 and `twice_or_zero(-4)` is 0."
)
RIGHT = "fn twice_or_zero(n: int) to int {\n    if n < 0 {\n        return 0\n    }\n    return n * 2\n}\n"
RESULTS = {-4: 0, -1: 0, -9: 0, 1: 2, 5: 10, 8: 16, 20: 40, 0: 0}
TESTS = "".join(
    f"@test fn observed_{number}() {{ assert(twice_or_zero({value}) is {result}) }}\n"
    for number, (value, result) in enumerate(RESULTS.items())
)


def pair(number: int = 0) -> TrainingPair:
    """A row of a train set with hidden tests; the number is part of its name."""
    name = f"twice_or_zero_{number}" if number else "twice_or_zero"
    prompt, response, tests = (text.replace("twice_or_zero", name) for text in (PROMPT, RIGHT, TESTS))
    return TrainingPair(
        prompt=prompt,
        response=response,
        category="function",
        task_family="task",
        difficulty=2,
        source=Source(path=f"{name}.vox", blob="0", span=(0, 1), lines=(1, 1), kind=SourceKind.SYNTHETIC),
        tests=tests,
    )


def task() -> Task:
    ((found, _),) = training_tasks([pair()]).values()
    return found


def rewarded(text: str, *, stopped: bool = True, to: Task | None = None) -> Reward:
    asked = to or task()
    completion = Completion(task=asked.id, sample=0, text=text, num_tokens=9, stopped=stopped)
    (score,) = score_completions([asked], [completion])
    return compute_reward(asked, score)
