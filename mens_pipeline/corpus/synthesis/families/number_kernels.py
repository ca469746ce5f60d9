"""Functions on whole numbers: recursion, loops and plain arithmetic."""

from collections.abc import Callable
from math import gcd
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import block
from mens_pipeline.corpus.synthesis.families.kernel import Kernel, boolean, numbers, text

_ROWS: Final = (
    ("seats_in", "rows", "seats in a hall with `rows` rows", "row", "seats"),
    ("bricks_for", "layers", "bricks in a pile of `layers` layers", "layer", "bricks"),
    ("plants_in", "beds", "plants in `beds` beds", "bed", "plants"),
    ("minutes_after", "weeks", "minutes trained in `weeks` weeks", "week", "minutes"),
    ("steps_climbed", "floors", "steps climbed over `floors` floors", "floor", "steps"),
    ("coins_saved", "months", "coins saved in `months` months", "month", "coins"),
)


def _row_sum(random: Random) -> Kernel:
    name, param, what, each, things = random.choice(_ROWS)
    first, step = random.randint(2, 20), random.randint(1, 6)
    counts = random.sample(range(1, 9), 2)
    return Kernel(
        name,
        f"{param}: int",
        "int",
        (block(f"if {param} <= 0", "return 0"), f"return {first} + ({param} - 1) * {step} + {name}({param} - 1)"),
        f"It returns the number of {what}: the first {each} has {first} {things} and every further {each} {step} more "
        f"than the one before; zero or less gives 0.",
        tuple((str(n), str(sum(first + k * step for k in range(n)))) for n in (*counts, 0)),
    )


def _power(random: Random) -> Kernel:
    name = random.choice(("power", "raise_to", "int_power"))
    base, exponent = random.choice((("base", "exponent"), ("number", "times"), ("x", "n")))
    pairs = [(random.randint(2, 7), random.randint(2, 5)) for _ in range(2)]
    return Kernel(
        name,
        f"{base}: int, {exponent}: int",
        "int",
        (block(f"if {exponent} <= 0", "return 1"), f"return {base} * {name}({base}, {exponent} - 1)"),
        f"It raises `{base}` to the power `{exponent}` by multiplying recursively; an exponent of zero or less "
        f"gives 1.",
        tuple((f"{b}, {e}", str(b**e)) for b, e in (*pairs, (9, 0))),
    )


def _digits(random: Random) -> Kernel:
    base = random.choice((10, 10, 2, 5, 8))
    counting = random.random() < 1 / 2
    name = random.choice(("digit_count", "num_digits") if counting else ("digit_sum", "sum_of_digits"))
    last, now = ("1", "1 + ") if counting else ("n", f"n % {base} + ")

    def twin(n: int) -> int:
        return (1 if counting else n) if n < base else (1 if counting else n % base) + twin(n // base)

    what = "how many digits `n` has" if counting else "the sum of the digits of `n`"
    samples = (random.randint(1, base - 1), *random.sample(range(base, 5000), 2))
    return Kernel(
        name,
        "n: int",
        "int",
        (block(f"if n < {base}", f"return {last}"), f"return {now}{name}(n / {base})"),
        f"It returns {what}, written in base {base}, for a non-negative `n`.",
        tuple((str(n), str(twin(n))) for n in samples),
    )


def _divisor(random: Random) -> Kernel:
    name = random.choice(("gcd", "common_divisor", "greatest_divisor"))
    a, b = random.choice((("a", "b"), ("first", "second"), ("width", "height")))
    pairs = [(random.randint(2, 30) * 6, random.randint(2, 30) * 4) for _ in range(2)]
    return Kernel(
        name,
        f"{a}: int, {b}: int",
        "int",
        (block(f"if {b} is 0", f"return {a}"), f"return {name}({b}, {a} % {b})"),
        f"It returns the greatest common divisor of the non-negative numbers `{a}` and `{b}` by Euclid's algorithm.",
        tuple((f"{x}, {y}", str(gcd(x, y))) for x, y in (*pairs, (7, 0))),
    )


def _sequence(random: Random) -> Kernel:
    name = random.choice(("sequence", "term", "rabbit_pairs", "step_ways"))
    zero, one = random.choice(((0, 1), (1, 1), (2, 1), (1, 3), (1, 2)))

    def twin(n: int) -> int:
        return (zero, one)[n] if n < len((zero, one)) else twin(n - 1) + twin(n - 2)

    return Kernel(
        name,
        "n: int",
        "int",
        (
            block("if n <= 0", f"return {zero}"),
            block("if n is 1", f"return {one}"),
            f"return {name}(n - 1) + {name}(n - 2)",
        ),
        f"Term 0 is {zero}, term 1 is {one}, every later term is the sum of the two before it; it returns term `n`.",
        tuple((str(n), str(twin(n))) for n in random.sample(range(2, 11), 3)),
    )


def _countdown(random: Random) -> Kernel:
    name = random.choice(("countdown", "count_down", "launch_text"))
    final, separator = random.choice(("go", "lift-off", "start", "done")), random.choice((" ", ", ", "-", "..."))
    return Kernel(
        name,
        "n: int",
        "str",
        (block("if n <= 0", f"return {text(final)}"), f"return str(n) + {text(separator)} + {name}(n - 1)"),
        f'It counts down from `n` to 1 and ends with "{final}", with "{separator}" between the parts.',
        tuple(
            (str(n), text(separator.join([*map(str, range(n, 0, -1)), final]))) for n in (random.randint(2, 5), 1, 0)
        ),
    )


def _halvings(random: Random) -> Kernel:
    by = random.randint(2, 5)
    name = random.choice(("rounds_left", "divisions", "levels"))

    def twin(n: int) -> int:
        return 0 if n < by else 1 + twin(n // by)

    return Kernel(
        name,
        "n: int",
        "int",
        (block(f"if n < {by}", "return 0"), f"return 1 + {name}(n / {by})"),
        f"It returns how often `n` can be divided by {by}, dropping the remainder, until it is below {by}.",
        tuple((str(n), str(twin(n))) for n in (random.randint(10, 90), random.randint(100, 900), 1)),
    )


_GOALS: Final = (
    ("weeks_to_save", "weeks", "save", "cents"),
    ("days_to_read", "days", "read", "pages"),
    ("trips_to_move", "trips", "move", "boxes"),
    ("laps_to_run", "laps", "run", "metres"),
    ("hours_to_fill", "hours", "fill in", "litres"),
    ("shifts_to_pick", "shifts", "pick", "kilos"),
)


def _goal(random: Random) -> Kernel:
    name, periods, verb, things = random.choice(_GOALS)
    goal = random.choice(("goal", "target", "wanted"))
    first, more = random.randint(10, 60), random.randint(0, 9)
    each = f"{first} in the first and {more} more each time" if more else f"{first} in each of them"

    def twin(target: int) -> int:
        done, count = 0, 0
        while done < target:
            done, count = done + first + count * more, count + 1
        return count

    step = f"done += {first} + {periods} * {more}" if more else f"done += {first}"
    return Kernel(
        name,
        f"{goal}: int",
        "int",
        (
            "let mut done = 0",
            f"let mut {periods} = 0",
            block(f"while done < {goal}", step, f"{periods} += 1"),
            f"return {periods}",
        ),
        f"It returns how many {periods} it takes to {verb} at least `{goal}` {things}, with {each}.",
        tuple((str(n), str(twin(n))) for n in (random.randint(50, 200), random.randint(201, 900), 0)),
    )


def _growth(random: Random) -> Kernel:
    factor = random.choice((2, 3, 4, 10))
    name = random.choice(("steps_to_reach", "rounds_until", "generations_to"))
    start, goal = random.choice((("start", "goal"), ("size", "limit"), ("value", "target")))

    def twin(value: int, target: int) -> int:
        return 0 if value >= target else 1 + twin(value * factor, target)

    pairs = [(random.randint(1, 9), random.randint(50, 2000)) for _ in range(2)]
    return Kernel(
        name,
        f"{start}: int, {goal}: int",
        "int",
        (
            f"let mut current = {start}",
            "let mut steps = 0",
            block(f"while current < {goal}", f"current = current * {factor}", "steps += 1"),
            "return steps",
        ),
        f"It returns how often the positive `{start}` must be multiplied by {factor} until it is at least `{goal}`.",
        tuple((f"{a}, {b}", str(twin(a, b))) for a, b in (*pairs, (8, 8))),
    )


def _multiples(random: Random) -> Kernel:
    by = random.randint(2, 12)
    name = random.choice(("multiples_up_to", "departures_until", "marks_up_to"))
    limit = random.choice(("limit", "last", "end"))
    return Kernel(
        name,
        f"{limit}: int",
        "List[int]",
        (
            "let mut found: List[int] = []",
            block(f"for n in range(1, {limit} + 1)", block(f"if n % {by} is 0", "found = found.push(n)")),
            "return found",
        ),
        f"It returns the list of all multiples of {by} from {by} up to and including `{limit}`, in ascending order.",
        tuple((str(n), numbers(list(range(by, n + 1, by)))) for n in (by * 3, by * 2 + 1, by - 1)),
    )


def _smallest_factor(random: Random) -> Kernel:
    name = random.choice(("is_prime", "prime"))
    samples = (random.choice((7, 13, 29, 97, 101)), random.choice((9, 15, 49, 91)), 1)

    def twin(n: int) -> bool:
        return n > 1 and all(n % d for d in range(2, n))

    return Kernel(
        name,
        "n: int",
        "bool",
        (
            block("if n < 2", "return false"),
            "let mut divisor = 2",
            block("while divisor * divisor <= n", block("if n % divisor is 0", "return false"), "divisor += 1"),
            "return true",
        ),
        "It says whether `n` is a prime number, trying divisors from 2 up to the square root with a `while` loop.",
        tuple((str(n), boolean(twin(n))) for n in samples),
    )


_PACKS: Final = (
    ("boxes_needed", "eggs", "box", 6, 30),
    ("buses_needed", "passengers", "bus", 16, 60),
    ("pages_needed", "rows", "page", 20, 60),
    ("crates_needed", "bottles", "crate", 6, 24),
    ("tables_needed", "guests", "table", 4, 12),
    ("vans_needed", "parcels", "van", 40, 120),
)


def _packs(random: Random) -> Kernel:
    name, things, pack, least, most = random.choice(_PACKS)
    size = random.randint(least, most)
    return Kernel(
        name,
        f"{things}: int",
        "int",
        (
            block(f"if {things} <= 0", "return 0"),
            f"return ({things} + {size - 1}) / {size}",
        ),
        f"One {pack} holds {size} {things}; it returns how many are needed for all `{things}`, rounded up, "
        "and 0 for zero or less.",
        tuple((str(n), str(-(-n // size))) for n in (size, size * 2 + 1, 0)),
    )


def _bounded(random: Random) -> Kernel:
    low = random.randint(0, 40)
    high = low + random.randint(10, 200)
    name, value = random.choice(
        (("clamp_volume", "volume"), ("legal_speed", "speed"), ("safe_level", "level"), ("valid_dose", "dose"))
    )
    return Kernel(
        name,
        f"{value}: int",
        "int",
        (
            block(f"if {value} < {low}", f"return {low}"),
            block(f"if {value} > {high}", f"return {high}"),
            f"return {value}",
        ),
        f"It keeps `{value}` between {low} and {high}: smaller values become {low}, larger ones {high}, "
        "all others stay as they are.",
        ((str(low - 5), str(low)), (str(high + 1), str(high)), (str(low + 4), str(low + 4))),
    )


RECURSIVE: Final[tuple[Callable[[Random], Kernel], ...]] = (
    _row_sum, _power, _digits, _divisor, _sequence, _countdown, _halvings
)  # fmt: skip
"""Functions that call themselves."""

LOOPS: Final[tuple[Callable[[Random], Kernel], ...]] = (_goal, _growth, _multiples, _smallest_factor)
"""Functions with a `while` or a `for` over a range."""

ARITHMETIC: Final[tuple[Callable[[Random], Kernel], ...]] = (_packs, _bounded)
"""Functions of a few lines."""
