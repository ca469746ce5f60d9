"""Drawn tasks are accepted, tested and distinct, and their sides share nothing."""

import re
from collections import Counter
from itertools import islice
from random import Random

import pytest

from mens_pipeline.corpus.behaviour.observe import Behaviour, observe_behaviour, passes
from mens_pipeline.corpus.extract.batches import Pool
from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.corpus.synthesis.tasks import draw
from mens_pipeline.corpus.synthesis.tasks.draw import (
    Side,
    arguments_for,
    draw_function,
    draw_tasks,
    heldout_tasks,
    is_heldout_family,
    parse_inputs,
)
from mens_pipeline.corpus.synthesis.tasks.templates import TASK, Atom, draft_task, indent, load_tasks
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.language import analyze, structure_of
from mens_pipeline.language.ast import Function
from mens_pipeline.language.interpreter import Value, VariantValue
from mens_pipeline_tests.every import every, every_row
from mens_pipeline_tests.language.examples import parse

_NUM_TASKS = 120


@pytest.fixture(scope="module")
def tasks() -> list[TrainingPair]:
    return list(islice(draw_tasks(0), _NUM_TASKS))


def _skeleton(pair: TrainingPair) -> str:
    module = parse(pair.response)
    return structure_of(module).digest


def test_responses_are_accepted_and_pass_their_hidden_tests(tasks: list[TrainingPair]) -> None:
    for pair in tasks:
        assert analyze(pair.response).diagnostics == ()
        assert pair.tests is not None
        assert pair.tests.count("@test") >= 5
        assert passes(pair.response, pair.tests)
    assert len({pair.response for pair in tasks}) == len(tasks)


def test_examples_of_prompts_hold(tasks: list[TrainingPair]) -> None:
    examples = [
        re.findall(r"`(\w+\([^`]*\))` (?:is|returns|gives) (`[^`]*`|.+?)(?= and `|\.$|, `)", pair.prompt)
        for pair in tasks
    ]
    shown = [(pair, pairs) for pair, pairs in zip(tasks, examples, strict=True) if pairs]
    for pair, pairs in shown:
        asserted = "\n".join(f"    assert({call} is {result.strip('`')})" for call, result in pairs)

        assert passes(pair.response, f"@test fn examples() {{\n{asserted}\n}}\n"), pair.prompt
    assert 1 / 2 < len(shown) / len(tasks) < 5 / 6


def test_prompts_name_the_function_with_its_signature(tasks: list[TrainingPair]) -> None:
    for pair in tasks:
        *_, head = re.findall(r"^fn (.*) \{$", pair.response, re.MULTILINE)
        name, _, signature = head.partition("(")

        assert head in pair.prompt or (f"`{name}`" in pair.prompt and f"({signature}" in pair.prompt)
        assert "$" not in pair.prompt + pair.response
        assert "\n" not in pair.prompt
        assert not re.search(r"[a-z],[,.;]|\.\. ", re.sub('"[^"]*"', "", pair.prompt))


def test_rows_spread_over_levels_and_skeletons(tasks: list[TrainingPair]) -> None:
    levels = {atom.name: atom.level for atom in load_tasks()[0]}
    counts = Counter(levels[str(pair.template).split("/")[1]] for pair in tasks)
    same = Counter((pair.template, _skeleton(pair)) for pair in tasks)

    assert set(counts) == set(range(6))
    assert counts[0] > counts[3] > counts[5]
    assert max(same.values()) <= 2
    assert {pair.task_family for pair in tasks} == {TASK}


def test_the_same_seed_gives_the_same_tasks_with_any_number_of_workers(tasks: list[TrainingPair]) -> None:
    assert list(islice(draw_tasks(0, pool=Pool(2)), 60)) == tasks[:60]
    assert list(islice(draw_tasks(1), 5)) != tasks[:5]


def test_sides_share_neither_families_nor_programs(tasks: list[TrainingPair]) -> None:
    held = heldout_tasks(0, 40)
    families = {side: {str(pair.template).split("/")[1] for pair in pairs} for side, pairs in held.items()}
    trained = {str(pair.template).split("/")[1] for pair in tasks}

    assert [len(pairs) for pairs in held.values()] == [40, 40]
    assert all(map(is_heldout_family, families[Side.UNKNOWN]))
    assert not any(map(is_heldout_family, families[Side.KNOWN] | trained))
    assert {
        _skeleton(pair) + str(re.findall(r"\d+|\"[^\"]*\"", pair.response)) for pair in held[Side.KNOWN]
    }.isdisjoint(_skeleton(pair) + str(re.findall(r"\d+|\"[^\"]*\"", pair.response)) for pair in tasks)


def test_about_an_eighth_of_the_families_never_trains() -> None:
    atoms = load_tasks()[0]
    held = [atom for atom in atoms if is_heldout_family(atom.name)]

    assert len(atoms) >= 100
    assert 1 / 12 < len(held) / len(atoms) < 1 / 6
    assert {atom.level for atom in atoms if atom not in held} == set(range(6))


@every("atom", load_tasks()[0], ids=lambda atom: atom.name)
def test_every_atom_gives_tasks(atom: Atom) -> None:
    banks = load_tasks()[1]
    kept = 0
    for number, code in enumerate(atom.code * 2):
        details = atom.model_copy(update={"code": [code], "says": [atom.says[number % len(atom.says)]]})
        draft = draft_task(details, banks, Random(number), str(number))  # noqa: S311 - a reproducible draw
        module = parse(draft.program)

        assert max(map(len, draft.program.split("\n"))) <= 120
        kept += draw._observe(draft, module) is not None  # noqa: SLF001 - one draft at a time
    assert kept > 0


def test_observed_functions_are_self_contained() -> None:
    for seed in range(30):
        function = draw_function(Random(seed))  # noqa: S311 - a reproducible draw
        behaviour = observe_behaviour(function.code, function.name, seed="any")

        assert isinstance(behaviour, Behaviour)
        assert function.code.startswith(f"fn {function.name}{function.signature} {{")
        assert function.behaviour.startswith("It ")
        assert passes(
            function.code, f"@test fn t() {{ assert({function.calls[0].call} is {function.calls[0].result}) }}"
        )


def test_trivial_tasks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    atom = load_tasks()[0][0]
    texts = {"holes": {}, "takes": "n: int", "gives": "int", "fn": ["f", "g", "h"], "family": "", "edges": []}
    details = {**texts, "name": "same", "says": ["returns 1", "gives 1"], "code": ["return 1", "return 1 + n - n"]}
    monkeypatch.setattr(draw, "load_tasks", lambda: ((atom.model_copy(update=details),), {}))
    monkeypatch.setattr(draw, "is_heldout_family", lambda _name: False)
    monkeypatch.setattr(draw, "_MOST_TRIES", 300)

    with pytest.raises(RefusedError, match=r"only \d+ different tasks could be drawn\. Ask for fewer"):
        next(draw_tasks(0))


def test_code_is_indented_by_its_braces() -> None:
    assert indent('fn f() {\nif a {\nreturn "x"\n} else {\nreturn g({ k: 1 })\n}\n}') == (
        'fn f() {\n    if a {\n        return "x"\n    } else {\n        return g({ k: 1 })\n    }\n}'
    )
    assert indent("type S =\n    | A\n    | B") == "type S =\n    | A\n    | B"


def test_an_atom_with_too_long_lines_is_refused() -> None:
    atoms, banks = load_tasks()
    long = atoms[0].model_copy(update={"code": ["return " + " + ".join(["1"] * 60)]})

    with pytest.raises(ConfigurationError, match=f"task {long.name}: 1000 drafts had a line of more than 100"):
        draft_task(long, banks, Random(0), "0")  # noqa: S311 - a reproducible draw


def _draw(head: str, inputs: str) -> list[tuple[Value, ...]]:
    module = parse(f"{head} {{ return 40 }}")
    function = module.declarations[-1]
    assert isinstance(function, Function)
    return list(arguments_for(module, function, parse_inputs(inputs), "seed"))


def test_inputs_are_parsed() -> None:
    assert parse_inputs("n=0..40, line=csv, len(xs)=2") == {"n": "0..40", "line": "csv", "len(xs)": "2"}
    assert parse_inputs("") == {}


def test_ints_lie_in_their_range() -> None:
    ints = [n for (n,) in _draw("fn f(n: int) to int", "n=3..9")]
    nested = [x for (xs,) in _draw("fn f(xs: List[int]) to int", "xs=0..5, len(xs)=2") for x in xs]
    free = [n for (n,) in _draw("fn f(n: int) to int", "")]
    records = _draw("type P { x: int, on: bool }\nfn f(p: P, on: bool) to int", "x=0..5, on=0..1")

    assert set(ints) == set(range(3, 10))
    assert min(nested) >= -9
    assert {41, -1} <= set(free)
    assert all(0 <= p["x"] <= 5 and type(p["on"]) is bool and type(on) is bool for p, on in records)


def test_lists_have_a_minimum_length() -> None:
    assert min(len(xs) for (xs,) in _draw("fn f(xs: List[int]) to int", "len(xs)=3")) == 3
    assert min(len(xs) for (xs,) in _draw("fn f(xs: List[int]) to int", "")) == 0


def test_ranges_apply_to_fields_of_variants_by_name() -> None:
    head = "type S = | A(left: int, right: int) | B\nfn f(s: S, o: Option[int]) to int"
    for shape, option in _draw(head, "left=0..3, right=50..60, o=7..8"):
        assert isinstance(shape, VariantValue)
        assert shape.name == "B" or (0 <= shape.fields[0] <= 3 and 50 <= shape.fields[1] <= 60)
        assert option.fields == () or option.fields[0] in {7, 8}


@every_row(
    ("phrase", r"\S+( \S+)*"),
    ("wordlist", r"[^,\s]+(,[^,\s]+)*"),
    ("csv", r"-?\d+(,-?\d+)*"),
    ("integer", r"-?\d+"),
    ("tea|Oslo", r"tea|Oslo"),
    ("padded", r"[\s\S]*"),
)
def test_texts_match_their_kind(kind: str, pattern: str) -> None:
    texts = [text for (text,) in _draw("fn f(t: str) to int", f"t={kind}")]

    assert all(re.fullmatch(pattern, text) for text in texts)
    assert len(set(texts)) > 1
