"""Functions on strings."""

from collections.abc import Callable
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import block
from mens_pipeline.corpus.synthesis.families.kernel import Kernel, boolean, text

_PEOPLE: Final = (
    ("Ines", "Aalto"), ("Omar", "Haddad"), ("Ruth", "Klein"), ("Mai", "Sato"), ("Nora", "Lind"), ("Tom", "Okoro")
)  # fmt: skip
_PHRASES: Final = (
    "Winter Strings", "Harbour Hall", "Open Stage", "Heron Loop", "Plum Tart", "Night Trail", "Paper Boats"
)  # fmt: skip
_WORDS: Final = ("kayak", "level", "rotor", "harbour", "otter", "window", "Anna", "Noon", "ladder", "civic")


def _initials(random: Random) -> Kernel:
    first, last = random.choice((("first", "last"), ("given", "family"), ("first_name", "last_name")))
    mark = random.choice((".", "", "-", ". "))
    name = random.choice(("initials", "monogram", "short_name"))
    people = random.sample(_PEOPLE, 2)
    return Kernel(
        name,
        f"{first}: str, {last}: str",
        "str",
        (
            f"return {first}.slice(0, 1) + {text(mark)} + {last}.slice(0, 1)"
            if mark
            else f"return {first}.slice(0, 1) + {last}.slice(0, 1)",
        ),
        f"It returns the first letter of `{first}` and the first letter of `{last}`"
        + (f' with "{mark}" between them.' if mark else " with nothing between them."),
        tuple((f"{text(a)}, {text(b)}", text(a[0] + mark + b[0])) for a, b in people),
    )


def _slug(random: Random) -> Kernel:
    mark = random.choice(("-", "_", "."))
    name = random.choice(("slug", "file_stem", "page_path", "tag_of"))
    param = random.choice(("title", "heading", "caption"))
    prefix = random.choice(("", "/", "page-", "/notes/"))
    body = f'{param}.trim().to_lower().replace(" ", {text(mark)})'
    return Kernel(
        name,
        f"{param}: str",
        "str",
        (f"return {text(prefix)} + {body}" if prefix else f"return {body}",),
        f'It trims `{param}`, puts it in lower case and replaces every space by "{mark}"'
        + (f'; the result begins with "{prefix}".' if prefix else "."),
        tuple(
            (text(f" {phrase} "), text(prefix + phrase.lower().replace(" ", mark)))
            for phrase in random.sample(_PHRASES, 2)
        ),
    )


def _mask(random: Random) -> Kernel:
    keep, mark = random.randint(2, 5), random.choice(("*", "x", "#"))
    name, param = random.choice((("masked", "code"), ("hide_card", "card"), ("masked_phone", "phone")))
    samples = [str(random.randint(10**9, 10**10 - 1)) for _ in range(2)]
    return Kernel(
        name,
        f"{param}: str",
        "str",
        (
            f"let hidden = len({param}) - {keep}",
            block("if hidden <= 0", f"return {param}"),
            f"return {text(mark)}.repeat(hidden) + {param}.slice(hidden, len({param}))",
        ),
        f'It replaces all but the last {keep} characters of `{param}` by "{mark}"; a text of {keep} characters or '
        f"fewer "
        "is returned as it is. The text is plain ASCII.",
        (*((text(s), text(mark * (10 - keep) + s[-keep:])) for s in samples), ('"7"', '"7"')),
    )


def _shorten(random: Random) -> Kernel:
    limit, end = random.randint(4, 9), random.choice(("...", "~", "-", "(more)"))
    name = random.choice(("shorten", "preview", "truncated"))
    param = random.choice(("title", "body", "remark"))
    samples = random.sample(_PHRASES, 2)
    return Kernel(
        name,
        f"{param}: str",
        "str",
        (
            block(f"if {param}.chars_count() <= {limit}", f"return {param}"),
            f"return {param}.slice(0, {limit}) + {text(end)}",
        ),
        f"It returns `{param}` as it is if it has at most {limit} characters, otherwise its first {limit} characters "
        f'followed by "{end}".',
        (*((text(s), text(s if len(s) <= limit else s[:limit] + end)) for s in samples), ('"abc"', '"abc"')),
    )


def _padded(random: Random) -> Kernel:
    width, prefix = random.randint(3, 8), random.choice(("", "INV-", "P-", "No. ", "TK-"))
    name = random.choice(("padded", "ticket_number", "serial", "reference"))
    samples = (random.randint(1, 9), random.randint(10, 99))
    returned = f'{text(prefix)} + "0".repeat(' if prefix else '"0".repeat('
    return Kernel(
        name,
        "n: int",
        "str",
        (
            "let digits = str(n)",
            block(f"if len(digits) >= {width}", f"return {text(prefix)} + digits" if prefix else "return digits"),
            f"return {returned}{width} - len(digits)) + digits",
        ),
        f"It writes the non-negative `n` with leading zeros so that it has at least {width} digits"
        + (f', after the prefix "{prefix}".' if prefix else "."),
        tuple((str(n), text(prefix + str(n).zfill(width))) for n in (*samples, 10**width)),
    )


def _occurrences(random: Random) -> Kernel:
    letter = random.choice("aeiours")
    name = random.choice((f"count_{letter}", f"num_{letter}s", "letter_count"))
    param = random.choice(("word", "line", "phrase"))
    samples = [random.choice(_PHRASES).lower(), random.choice(_WORDS).lower(), ""]
    return Kernel(
        name,
        f"{param}: str",
        "int",
        (
            "let mut found = 0",
            block(
                f"for i in range(0, {param}.chars_count())",
                block(f"if {param}.slice(i, i + 1) is {text(letter)}", "found += 1"),
            ),
            "return found",
        ),
        f'It counts how often the lower-case letter "{letter}" occurs in `{param}`.',
        tuple((text(s), str(s.count(letter))) for s in samples),
    )


def _palindrome(random: Random) -> Kernel:
    name = random.choice(("is_palindrome", "reads_backwards", "same_reversed"))
    param = random.choice(("word", "phrase", "name"))
    samples = random.sample(_WORDS, 3)
    return Kernel(
        name,
        f"{param}: str",
        "bool",
        (
            f"let folded = {param}.to_lower()",
            "let last = folded.chars_count() - 1",
            block(
                "for i in range(0, last + 1)",
                block("if folded.slice(i, i + 1) isnt folded.slice(last - i, last - i + 1)", "return false"),
            ),
            "return true",
        ),
        f"It says whether `{param}` reads the same backwards, ignoring case.",
        tuple((text(s), boolean(s.lower() == s.lower()[::-1])) for s in samples),
    )


def _word_count(random: Random) -> Kernel:
    name = random.choice(("word_count", "num_words", "count_words"))
    param = random.choice(("line", "remark", "body"))
    longer = random.randint(0, 3)
    samples = [random.choice(_PHRASES), f" {random.choice(_PHRASES)}  {random.choice(_WORDS)}", ""]
    what = "that are not blank" if longer == 0 else f"of more than {longer} {'letter' if longer == 1 else 'letters'}"
    return Kernel(
        name,
        f"{param}: str",
        "int",
        (f'return len({param}.split(" ").filter(word => len(word) > {longer}))',),
        f"It splits `{param}` at spaces and counts the pieces {what}. The text is plain ASCII.",
        tuple((text(s), str(len([word for word in s.split(" ") if len(word) > longer]))) for s in samples),
    )


def _clock(random: Random) -> Kernel:
    name, param = random.choice((("clock", "minutes"), ("hours_and_minutes", "total"), ("time_text", "minutes")))
    mark = random.choice((":", ".", " h "))
    samples = (random.randint(60, 1439), random.randint(1, 59), 600)
    return Kernel(
        name,
        f"{param}: int",
        "str",
        (
            f"let rest = {param} % 60",
            'let padded = if rest < 10 { "0" + str(rest) } else { str(rest) }',
            f"return str({param} / 60) + {text(mark)} + padded",
        ),
        f'It writes the non-negative number of minutes `{param}` as hours, "{mark}" and two digits of minutes.',
        tuple((str(n), text(f"{n // 60}{mark}{n % 60:02}")) for n in samples),
    )


def _counted(random: Random) -> Kernel:
    one, many = random.choice((("box", "boxes"), ("seat", "seats"), ("reply", "replies"), ("child", "children")))
    none = random.choice((f"no {many}", "nothing", "none yet"))
    name = random.choice((f"{one}_caption", f"counted_{many}", "caption"))
    return Kernel(
        name,
        "n: int",
        "str",
        (
            block("if n is 0", f"return {text(none)}"),
            block("if n is 1", f"return {text(f'1 {one}')}"),
            f"return str(n) + {text(f' {many}')}",
        ),
        f'It returns "{none}" for 0, "1 {one}" for 1, and otherwise the number followed by "{many}".',
        (("0", text(none)), ("1", text(f"1 {one}")), (str(k := random.randint(2, 60)), text(f"{k} {many}"))),
    )


TEXTS: Final[tuple[Callable[[Random], Kernel], ...]] = (
    _initials, _slug, _mask, _shorten, _padded, _occurrences, _palindrome, _word_count, _clock, _counted
)  # fmt: skip
"""Functions that read or build a string."""
