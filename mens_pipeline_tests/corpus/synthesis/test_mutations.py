"""Changes to accepted programs that one can ask for."""

import re
from random import Random

import pytest

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.mutations import MUTATIONS
from mens_pipeline.corpus.synthesis.mutations.task import Change, task_of
from mens_pipeline.corpus.synthesis.program import MAX_LINES
from mens_pipeline.corpus.synthesis.sample import Sample
from mens_pipeline.language import CONSTRUCTS, Mode, analyze, histogram, tokenize
from mens_pipeline_tests.corpus.rows import golden_read, program_of

_SEEDS = 80


def _random(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - a reproducible draw, no secret


def _tasks(kind: str, source: str, mode: Mode = Mode.SOURCE) -> dict[str, str]:
    """Request -> changed program, for all that different seeds give."""
    program = program_of(source, mode)
    found = [MUTATIONS[kind](program, _random(seed)) for seed in range(_SEEDS)]
    samples = [sample for sample in found if sample is not None]
    assert all(sample.prompt.endswith(f"\n\n{program.source.rstrip()}") for sample in samples)
    return {sample.prompt.removesuffix(f"\n\n{program.source.rstrip()}"): sample.response for sample in samples}


def _names(tasks: dict[str, str]) -> set[str]:
    """The names that the requests of a renaming speak of first."""
    return {re.findall(r"`(\w+)`", request)[0] for request in tasks}


@pytest.mark.parametrize("kind", MUTATIONS)
def test_golden_programs_change_into_accepted_programs(kind: str) -> None:
    """The answer is accepted, says something new, and is asked for with the whole program."""
    applied = 0
    for number, program in enumerate(golden_read()):
        sample = MUTATIONS[kind](program, _random(number))
        if sample is None:
            continue
        applied += 1
        analysis = analyze(sample.response, sample.mode)
        assert analysis.ok, sample.response
        assert not analysis.warnings
        assert sample.response != program.source
        assert sample.response.endswith("\n")
        assert not sample.response.endswith("\n\n")
        assert sample.prompt.endswith("\n\n" + program.source.rstrip())
        assert (sample.template, sample.mode, sample.origin) == (f"mutation/{kind}", program.mode, program.origin)
        assert sample.construct in CONSTRUCTS
        assert _same_comments(program.source, sample)
    assert applied >= 20


def _same_comments(source: str, sample: Sample) -> bool:
    """Whether no comment is lost; a renaming may touch their texts, a move their order."""
    before, after = (
        sorted(token.text for token in tokenize(text) if token.kind == "COMMENT") for text in (source, sample.response)
    )
    return len(before) == len(after) if sample.template == "mutation/rename" else before == after


def test_golden_programs_are_renamed_all_over() -> None:
    """The old name is gone as an identifier, the new one is new, and nothing else differs."""
    for number, program in enumerate(golden_read()):
        sample = MUTATIONS["rename"](program, _random(number))
        if sample is None:
            continue
        names = re.findall(r"`(\w+)`", sample.prompt.partition("\n\n")[0])
        old, new = names[0], names[-1]
        after = program_of(sample.response, sample.mode)
        assert new not in program.identifiers
        assert old not in after.identifiers
        assert program.identifiers - {old} == after.identifiers - {new}
        assert histogram(program.module) == histogram(after.module)
        back = [new if token.text == old else token.text for token in program.tokens if token.kind != "COMMENT"]
        assert back == [token.text for token in after.tokens if token.kind != "COMMENT"]


def test_golden_programs_are_reordered_without_loss() -> None:
    """The lines are the same lines, in another order."""
    num_moved = 0
    for number, program in enumerate(golden_read()):
        sample = MUTATIONS["reorder"](program, _random(number))
        if sample is not None and "field" not in sample.prompt and "variant" not in sample.prompt:
            num_moved += 1
            assert sample.response != program.source
            assert sorted(sample.response.split("\n")) == sorted(program.source.split("\n"))

    assert num_moved > 50


@pytest.mark.parametrize("kind", MUTATIONS)
def test_the_same_generator_gives_the_same_task(kind: str) -> None:
    """Another machine makes the same data."""
    for program in golden_read()[::20]:
        assert MUTATIONS[kind](program, _random(5)) == MUTATIONS[kind](program, _random(5))


@pytest.mark.parametrize("kind", MUTATIONS)
def test_long_programs_are_left_alone(kind: str) -> None:
    """The task would be mostly repetition."""
    source = "type T { a: int, b: int }\n" + "\n" * MAX_LINES + "fn f(n: int) to int { return n + 3 }\n"

    assert MUTATIONS[kind](program_of(source), _random(0)) is None


def test_a_change_that_is_not_what_was_asked_for_is_no_task() -> None:
    """Neither is one that the front end rejects."""
    program = program_of("fn f() { }")

    def task(text: str, *, is_done: bool) -> Sample | None:
        change = Change("rename", "function", "Do it:", (Edit(3, 4, text),), lambda _: is_done)
        return task_of(program, change)

    expected = Sample("mutation/rename", "function", "Do it:\n\nfn f() { }", "fn g() { }\n")
    assert task("g", is_done=True) == expected
    assert task("g", is_done=False) is None
    assert task("1", is_done=True) is None


_TASKS = """
// A Task is open until done_at is set; see done_at.
@table type OpenTask {
    title: str
    done_at: int
}

@index OpenTask.by_title on (title)

fn titles(max: int) to List[str] {
    let found = db.OpenTask.filter({ done_at: 0 }).limit(max)
    return found.map(each => each.title)
}

fn label_of(task: OpenTask) to str { return "task " + task.title }
"""


def test_a_table_is_renamed_in_all_its_roles() -> None:
    """Declaration, index, type, `db` access."""
    tasks = _tasks("rename", _TASKS)
    changed = tasks["Rename the table `OpenTask` to `OpenTicket` everywhere in this Vox program:"]

    assert changed == _TASKS.lstrip().replace("OpenTask", "OpenTicket")


def test_comments_follow_names_of_several_words() -> None:
    """A name with an underscore is no plain word; strings that have it would be left behind."""
    tasks = _tasks("rename", _TASKS)
    changed = tasks[
        "Rename the field `done_at` of the table `OpenTask` to `done_at_value` everywhere in this Vox program:"
    ]

    assert changed == _TASKS.lstrip().replace("done_at", "done_at_value")
    assert "done_at" not in _names(_tasks("rename", _TASKS.replace('"task "', '"done_at "')))


def test_plain_words_stay_in_strings_and_forbid_a_renaming_in_comments() -> None:
    """`task` in the text for people is not the parameter `task`."""
    tasks = _tasks("rename", _TASKS)
    request, changed = next(pair for pair in tasks.items() if "parameter `task` of the function" in pair[0])

    assert request.endswith(". Leave the text of strings as it is.")
    assert 'return "task " + ' in changed
    assert "task" not in _names(_tasks("rename", _TASKS.replace("// A Task", "// A task")))


def test_what_shares_a_name_is_renamed_together() -> None:
    """A field and a parameter of one name: the request names both."""
    source = "type Song { title: str }\n\nfn song(title: str) to Song { return { title: title } }\n"
    tasks = _tasks("rename", source)

    expected = source.replace("title", "headline")
    assert tasks["Rename the field and the parameter `title` to `headline` everywhere in this Vox program:"] == expected


_NOT_RENAMED = """
fn main() { print(shown("a")) }
fn shown(style: str) to str { return row(style=style) }
fn g(x: Option[int]) to str {
    let when_done = x
    std.when_done.call("when_done")
    match x { Some(n) => "n", None => "none" } // n
}
fn text() to str { return text() }
"""


def test_names_with_another_meaning_are_left_alone() -> None:
    """The entry point, names of the language and library, attributes, tags, members of records nobody declares."""
    assert _names(_tasks("rename", _NOT_RENAMED)) == {"shown", "x", "g"}


_MACHINE = "state_machine M { state On state Off on Flip from On -> Off }\n"
_VIEWS = "component C(wide: bool) { view: row(gap=wide) }\nfragment F() { C(wide=true) }\n"
_MEMBERS = "component C() { state hits = 0 effect depends_on (hits): { go(hits) } view: text() { hits } }\n"


@pytest.mark.parametrize(
    ("source", "what", "old", "new"),
    [
        ("type A = | Left(n: int) | Right\n", "the variant `Right` of the type `A`", "Right", "RightCase"),
        ("actor A { on ring() { } }\nfn f() { spawn(A).ring() }\n", "the handler `ring` of", "ring", "on_ring"),
        (_MACHINE, "the event `Flip` of the state machine `M`", "Flip", "FlipEvent"),
        (_MACHINE, "the state `Off` of the state machine `M`", "Off", "OffState"),
        ("@table type A { x: int }\n@index A.by_x on (x)\n", "the index `by_x` of the table `A`", "by_x", "by_x_index"),
        (_VIEWS, "the parameter `wide` of the component `C`", "wide", "given_wide"),
        (_MEMBERS, "the state `hits` of the component `C`", "hits", "current_hits"),
        ("let VAT_RATE = 3\n", "the module-level constant `VAT_RATE`", "VAT_RATE", "VAT_RATE_MAIN"),
        (
            "fn f(xs: X) { for word in xs { g(word) } }\n",
            "the loop variable `word` in the function `f`",
            "word",
            "term",
        ),
        ("fn f(xs: X) { xs.map(n => n + 1) }\n", "the lambda parameter `n` in the function `f`", "n", "given_n"),
        ("@endpoint(kind: query) fn f() to int { return 1 }\n", "the query endpoint `f`", "f", "compute_f"),
        ("fn f() { let mut x = 1 x += 1 }\n", "the variable `x` in the function `f`", "x", "x_value"),
        ("fn text(s: str) to str { return text(s) }\n", "the function `text`", "text", "compute_text"),
    ],
)
def test_each_kind_of_name_is_called_what_it_is(source: str, what: str, old: str, new: str) -> None:
    """And its new name has the same case."""
    tasks = _tasks("rename", source)
    changed = {answer for request, answer in tasks.items() if what in request.replace("The ", "the ", 1)}

    assert re.sub(rf"\b{old}\b", new, source) in changed


def test_a_name_without_a_free_neighbour_is_kept() -> None:
    """All ideas for its new name are taken."""
    source = "fn f(given_a: int, a_input: int) { }\nfn h() { (a => f(given_a, a_input))(1) }\n"

    assert "a" not in _names(_tasks("rename", source))
    assert _tasks("rename", "routes { }\n") == {}


_FIELDS = """
@table type Book {
    title: str,
    author: str, // who
    pages: int
}
"""


def test_a_field_is_added_in_the_style_of_the_others() -> None:
    """On a line of its own, with a comma where the others have one; comments stay where they are."""
    tasks = _tasks("add-field", _FIELDS)
    last = next(
        answer for request, answer in tasks.items() if "`priority: int` at the end of the table `Book`" in request
    )
    middle = next(answer for request, answer in tasks.items() if "directly after `author`" in request)

    assert last == _FIELDS.lstrip().replace("pages: int\n", "pages: int,\n    priority: int\n")
    assert re.search(r"author: str, // who\n    \w+: \S+,\n    pages: int\n", middle)


def test_a_field_is_added_on_a_shared_line() -> None:
    """With a comma on the side where none is yet."""
    for source, pattern in (
        ("type P { x: int }\n", r"type P \{ x: int, \w+: \S+ \}\n"),
        ("type P { x: int, }\n", r"type P \{ x: int, \w+: \S+, \}\n"),
        ("type P {\n    x: int }\n", r"type P \{\n    x: int, \w+: \S+ \}\n"),
        ("type P {\n    x: int\n}\n", r"type P \{\n    x: int\n    \w+: \S+\n\}\n"),
    ):
        assert all(re.fullmatch(pattern, changed) for changed in _tasks("add-field", source).values())


@pytest.mark.parametrize(
    "source",
    [
        "type P { }\n",
        "type P = | A(x: int)\n",
        "type P { x: int }\nfn f() to P { return { x: 1 } }\n",
        "@table type P { x: int, y: int }\nfn f() { db.P.insert({ x: 1 }) }\n",
        "fn f() { }\n",
    ],
)
def test_values_that_would_lack_the_field_forbid_it(source: str) -> None:
    """And what has no fields gets none."""
    assert _tasks("add-field", source) == {}


def test_inserting_elsewhere_forbids_nothing() -> None:
    """Another table, another receiver."""
    source = "@table type P { x: int }\nfn f(xs: X) { db.Q.insert({ z: 1 }) xs.insert(1) x.y.P.insert(2) }\n"

    assert _tasks("add-field", source)
