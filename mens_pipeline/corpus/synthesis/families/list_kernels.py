"""Functions on lists: loops with an accumulator, `filter`, `map` and `join`."""

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import block
from mens_pipeline.corpus.synthesis.families.kernel import Kernel, boolean, numbers, text, words

_LISTS: Final = ("values", "numbers", "readings", "scores", "prices", "lengths", "weights", "durations")

_WORDS: Final = ("oak", "willow", "ash", "larch", "birch", "maple", "pine", "elm", "hazel", "rowan", "alder", "fir")


def _sample(random: Random, low: int = 1, high: int = 40) -> list[int]:
    return random.sample(range(low, high), random.randint(3, 5))


def _extreme(random: Random) -> Kernel:
    largest = random.random() < 1 / 2
    items = random.choice(_LISTS)
    name = random.choice(("largest", "highest", "maximum") if largest else ("smallest", "lowest", "minimum"))
    samples = (_sample(random), _sample(random))
    pick = max if largest else min
    return Kernel(
        name,
        f"{items}: List[int]",
        "Option[int]",
        (
            block(f"if len({items}) is 0", "return None"),
            f"let mut best = {items}[0]",
            block(f"for item in {items}", block(f"if item {'>' if largest else '<'} best", "best = item")),
            "return Some(best)",
        ),
        f"It returns the {'largest' if largest else 'smallest'} element of `{items}`, or `None` for an empty list.",
        (*((numbers(sample), f"Some({pick(sample)})") for sample in samples), ("[]", "None")),
    )


def _threshold_sum(random: Random) -> Kernel:
    items, limit = random.choice(_LISTS), random.randint(5, 25)
    above = random.random() < 1 / 2
    counting = random.random() < 1 / 2
    name = (
        f"{random.choice(('count', 'num') if counting else ('sum', 'total'))}_{'above' if above else 'below'}_{limit}"
    )

    def twin(sample: list[int]) -> int:
        kept = [n for n in sample if (n > limit if above else n < limit)]
        return len(kept) if counting else sum(kept)

    step = "result += 1" if counting else "result += item"
    samples = (_sample(random), _sample(random), [limit])
    return Kernel(
        name,
        f"{items}: List[int]",
        "int",
        (
            "let mut result = 0",
            block(f"for item in {items}", block(f"if item {'>' if above else '<'} {limit}", step)),
            "return result",
        ),
        f"It {'counts' if counting else 'adds up'} the elements of `{items}` that are "
        f"{'greater' if above else 'less'} than {limit}.",
        tuple((numbers(sample), str(twin(sample))) for sample in samples),
    )


def _average(random: Random) -> Kernel:
    items, missing = random.choice(_LISTS), random.choice((0, 0, 0, -1))
    name = random.choice(("average", "mean", "whole_average"))
    samples = (_sample(random), _sample(random))
    return Kernel(
        name,
        f"{items}: List[int]",
        "int",
        (
            block(f"if len({items}) is 0", f"return {missing}"),
            "let mut total = 0",
            block(f"for item in {items}", "total += item"),
            f"return total / len({items})",
        ),
        f"It returns the average of `{items}`, rounded down, and {missing} for an empty list; no element is negative.",
        (*((numbers(sample), str(sum(sample) // len(sample))) for sample in samples), ("[]", str(missing))),
    )


def _running(random: Random) -> Kernel:
    items = random.choice(_LISTS)
    start = random.choice((0, 0, 10, 100))
    name = random.choice(("running_totals", "balances", "partial_sums"))

    def twin(sample: list[int]) -> list[int]:
        return [start + sum(sample[: k + 1]) for k in range(len(sample))]

    samples: tuple[list[int], ...] = (_sample(random, 1, 12), _sample(random, 1, 12), [])
    return Kernel(
        name,
        f"{items}: List[int]",
        "List[int]",
        (
            f"let mut total = {start}",
            "let mut totals: List[int] = []",
            block(f"for item in {items}", "total += item", "totals = totals.push(total)"),
            "return totals",
        ),
        f"It returns the running totals of `{items}`: element `i` is {f'{start} plus ' if start else ''}"
        "the sum of all elements up to and including position `i`.",
        tuple((numbers(sample), numbers(twin(sample))) for sample in samples),
    )


def _longest(random: Random) -> Kernel:
    items = random.choice(("names", "words", "species", "labels"))
    name = random.choice(("longest", "longest_name", "widest_label"))
    samples = [random.sample(_WORDS, random.randint(2, 4)) for _ in range(2)]
    return Kernel(
        name,
        f"{items}: List[str]",
        "str",
        (
            'let mut best = ""',
            block(f"for item in {items}", block("if len(item) > len(best)", "best = item")),
            "return best",
        ),
        f'It returns the longest of `{items}`, the first of them if several are as long, and "" for an empty list.',
        (*((words(sample), text(max(sample, key=len))) for sample in samples), ("[]", '""')),
    )


def _every(random: Random) -> Kernel:
    items, limit = random.choice(_LISTS), random.randint(3, 30)
    both = random.random() < 1 / 2
    name = f"{'all' if both else 'any'}_above_{limit}"
    inner = (f"if item <= {limit}", "return false") if both else (f"if item > {limit}", "return true")
    samples: tuple[list[int], ...] = (_sample(random), _sample(random), [])

    def twin(sample: list[int]) -> bool:
        return (all if both else any)(n > limit for n in sample)

    return Kernel(
        name,
        f"{items}: List[int]",
        "bool",
        (block(f"for item in {items}", block(*inner)), f"return {boolean(both)}"),
        f"It says whether {'every element' if both else 'at least one element'} of `{items}` is greater than {limit}; "
        f"for an empty list that is {boolean(both)}.",
        tuple((numbers(sample), boolean(twin(sample))) for sample in samples),
    )


def _first_where(random: Random) -> Kernel:
    items, limit = random.choice(_LISTS), random.randint(8, 30)
    name = random.choice(("first_over", "position_over", "index_over"))
    samples = (_sample(random), [*_sample(random, 1, limit), limit + 3], [limit])

    def twin(sample: list[int]) -> str:
        return next((f"Some({k})" for k, n in enumerate(sample) if n > limit), "None")

    return Kernel(
        name,
        f"{items}: List[int]",
        "Option[int]",
        (block(f"for item, i in {items}", block(f"if item > {limit}", "return Some(i)")), "return None"),
        f"It returns the position of the first element of `{items}` greater than {limit}, counted from 0, "
        "or `None` if there is none.",
        tuple((numbers(sample), twin(sample)) for sample in samples),
    )


def _distinct(random: Random) -> Kernel:
    items = random.choice(("names", "tags", "towns", "species"))
    name = random.choice(("distinct", "without_repeats", "unique_names"))
    pair = random.sample(_WORDS, 2)
    samples: tuple[list[str], ...] = ([pair[0], pair[1], pair[0]], random.sample(_WORDS, 3), [])
    return Kernel(
        name,
        f"{items}: List[str]",
        "List[str]",
        (
            "let mut kept: List[str] = []",
            block(f"for item in {items}", block("if not kept.contains(item)", "kept = kept.push(item)")),
            "return kept",
        ),
        f"It returns `{items}` without repetitions, in the order of first appearance.",
        tuple((words(sample), words(list(dict.fromkeys(sample)))) for sample in samples),
    )


def _scaled(random: Random) -> Kernel:
    items, factor, limit = random.choice(_LISTS), random.randint(2, 12), random.randint(4, 25)
    name = random.choice(("scaled", "converted", "adjusted"))
    samples = (_sample(random), _sample(random), [limit])

    def twin(sample: list[int]) -> list[int]:
        return [n * factor for n in sample if n >= limit]

    return Kernel(
        name,
        f"{items}: List[int]",
        "List[int]",
        (f"return {items}.filter(n => n >= {limit}).map(n => n * {factor})",),
        f"With `filter` and `map`, it keeps the elements of `{items}` that are at least {limit} and multiplies each "
        f"of those by {factor}.",
        tuple((numbers(sample), numbers(twin(sample))) for sample in samples),
    )


def _joined(random: Random) -> Kernel:
    items = random.choice(("names", "words", "towns", "tags"))
    name = random.choice(("label_line", "joined", "as_line"))
    separator = random.choice((", ", " / ", "; ", " + ", " | "))
    change, twin, how = random.choice(
        (
            (".to_upper()", str.upper, "in upper case"),
            (".to_lower()", str.lower, "in lower case"),
            (".slice(0, 1)", lambda word: word[:1], "cut to its first letter"),
        )
    )
    samples = [random.sample(_WORDS, random.randint(1, 3)) for _ in range(2)]
    return Kernel(
        name,
        f"{items}: List[str]",
        "str",
        (f"return {items}.map(item => item{change}).join({text(separator)})",),
        f'It joins `{items}` with "{separator}" between them, each one {how}.',
        (*((words(sample), text(separator.join(map(twin, sample)))) for sample in samples), ("[]", '""')),
    )


def _rises(random: Random) -> Kernel:
    items = random.choice(_LISTS)
    name = random.choice(("changes", "differences", "steps_between"))
    samples = (_sample(random), _sample(random), [7])

    def twin(sample: list[int]) -> list[int]:
        return [b - a for a, b in pairwise(sample)]

    return Kernel(
        name,
        f"{items}: List[int]",
        "List[int]",
        (
            "let mut found: List[int] = []",
            block(f"for i in range(1, len({items}))", f"found = found.push({items}[i] - {items}[i - 1])"),
            "return found",
        ),
        f"It returns the difference of each element of `{items}` to the one before it; the first element has none.",
        tuple((numbers(sample), numbers(twin(sample))) for sample in samples),
    )


LIST_LOOPS: Final[tuple[Callable[[Random], Kernel], ...]] = (
    _extreme, _threshold_sum, _average, _running, _longest, _every, _first_where, _distinct, _rises
)  # fmt: skip
"""Functions with a `for` over a list."""

LIST_CALLS: Final[tuple[Callable[[Random], Kernel], ...]] = (_scaled, _joined)
"""Functions that pass a lambda to `map` or `filter`."""
