"""Pairs that train, and pairs that are held out."""

from collections.abc import Iterable, Sequence
from itertools import count

import pytest

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.heldout_split import NGRAM, Split, group_of, is_held_out, split_pairs
from mens_pipeline.corpus.curate.near_duplicates import ngrams_of, words_of
from mens_pipeline.corpus.curate.pipeline_config import SplitPolicy, ValidatePolicy
from mens_pipeline.corpus.curate.validate import Repetition
from mens_pipeline.corpus.curate.validated_pairs import make_pairs
from mens_pipeline.corpus.extract.workspace import extract_workspace
from mens_pipeline.corpus.schema.reasons import SplitReason
from mens_pipeline.corpus.schema.records import ExtractedRecord, Lane, Lineage, SourceKind, TrainingPair
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.corpus.rows import pair_at
from mens_pipeline_tests.every import every_row

_POLICY = SplitPolicy(heldout_share=0.25, seed=0, max_overlap=0.5, min_nodes=12)
_PATHS = [f"golden/{number}.vox" for number in range(40)]
_HELD = [path for path in _PATHS if is_held_out(path, _POLICY)]
_FREE = [path for path in _PATHS if not is_held_out(path, _POLICY)]
_ANSWER = (
    "fn total(prices: List[int], limit: int) to int {{\n    return prices.filter(p => p < {0}).sum() + limit\n}}\n"
)
_RENAMED = (
    _ANSWER.format(3).replace("total", "owed").replace("prices", "debts").replace("limit", "n").replace("3", "77")
)
_OTHER = 'fn greet(name: str) to str { return "Good morning to you, " + name + ", and welcome" }\n'
_UNLIKE = '@test("{0}") fn t{0}() {{ assert(f{0}(["{0}", "b{0}"], {0}) is g{0}({0}, "c{0}") or h{0}({0}) < {0}) }}\n'


def _split(
    policy: SplitPolicy = _POLICY,
    repeats: ValidatePolicy | None = None,
    protected: Sequence[TrainingPair] = (),
    **rows: Iterable[TrainingPair],
) -> Split:
    sources = {label: list(pairs) for label, pairs in rows.items()}
    with BehaviourWorkers() as workers:
        split = split_pairs(sources, Repetition(repeats), policy, workers, protected)
    everything = [*split.heldout, *(row.pair for row in split.aside), *(p for ps in split.train.values() for p in ps)]
    given = [pair for pairs in sources.values() for pair in pairs]

    assert sorted(map(repr, everything)) == sorted(map(repr, given)), "every pair is somewhere, and once"
    return split


def _reasons(split: Split) -> list[tuple[SplitReason, str]]:
    return [(row.reason, row.detail) for row in split.aside]


def test_whole_files_are_held_out() -> None:
    labels = count()
    rows = [pair_at(path, f"{path} {n}", _UNLIKE.format(next(labels))) for path in _PATHS for n in range(2)]
    policy = _POLICY.model_copy(update={"min_nodes": 5, "max_overlap": 1.0})
    split = _split(policy, rows=rows[:40], more=rows[40:])
    scored = {group_of(pair) for pair in split.heldout}
    trained = {group_of(pair) for pairs in split.train.values() for pair in pairs}

    assert scored == set(_HELD)
    assert trained.isdisjoint(scored)
    assert (split.num_groups, split.num_heldout_groups) == (40, len(_HELD))
    assert list(split.train) == ["rows", "more"]


def test_the_decision_depends_on_path_and_seed_alone() -> None:
    paths = [f"{number}.vox" for number in range(4000)]
    held = {path for path in paths if is_held_out(path, _POLICY)}
    other = {path for path in paths if is_held_out(path, _POLICY.model_copy(update={"seed": 1}))}
    more = {path for path in paths if is_held_out(path, _POLICY.model_copy(update={"heldout_share": 0.5}))}
    none = {path for path in paths if is_held_out(path, _POLICY.model_copy(update={"heldout_share": 0}))}

    assert 0.22 < len(held) / len(paths) < 0.28
    assert 0.15 < len(held & other) / len(held) < 0.35
    assert held < more
    assert none == set()


def _programs(number: int) -> list[TrainingPair]:
    rows = [(f"{n}.vox", place) for n in range(number) for place in range(2 if n % 3 == 0 else 1)]
    return [
        pair_at(path, f"Write {path} {place}.", _UNLIKE.format(10 * int(path[:-4]) + place + 1)) for path, place in rows
    ]


@every_row(
    ({}, 1, 1),
    ({"min_heldout_tasks": 10}, 10, 7),
    ({"min_heldout_files": 9}, 12, 9),
    ({"min_heldout_tasks": 3, "min_heldout_files": 2}, 3, 2),
)
def test_more_files_are_held_out_until_the_eval_suite_is_large_enough(
    changes: dict[str, int], num_tasks: int, num_files: int
) -> None:
    policy = _POLICY.model_copy(update={"heldout_share": 0.05, "min_nodes": 5, "max_overlap": 1.0})
    split = _split(policy.model_copy(update=changes), rows=_programs(40))
    usual = {path for path in (f"{n}.vox" for n in range(40)) if is_held_out(path, policy)}

    assert len(split.heldout) == num_tasks
    assert split.num_evaluating_groups == split.num_heldout_groups == num_files
    assert {group_of(pair) for pair in split.heldout} >= usual
    assert split.shortfall == ""


def test_no_more_than_the_largest_share_is_held_out() -> None:
    policy = _POLICY.model_copy(
        update={"heldout_share": 0.05, "max_heldout_share": 0.2, "min_heldout_tasks": 50, "min_nodes": 5}
    )
    prose = pair_at("q.md", "What is it?", "Prose.").model_copy(
        update={"lane": Lane.DOCS_QA, "response_mode": "prose_only"}
    )
    split = _split(policy, rows=[*_programs(42), prose])

    assert (split.num_groups, split.num_heldout_groups, split.num_evaluating_groups) == (43, 8, 8)
    assert split.shortfall.startswith(f"A small eval suite: {len(split.heldout)} programs from ")
    assert split.shortfall.endswith("raise max_heldout_share in config/pipeline.yaml.")
    assert split.report().shortfall == split.shortfall


def test_pairs_that_cannot_be_tasks_do_not_enlarge_the_eval_suite() -> None:
    """Prose and small programs train instead, except for the usual share of files."""
    prose = [p.model_copy(update={"lane": Lane.DOCS_QA, "response_mode": "prose_only"}) for p in _programs(20)[:10]]
    small = [pair_at(f"s{n}.vox", f"Write s{n}.", "const A: int = 1\n") for n in range(10)]
    policy = _POLICY.model_copy(update={"heldout_share": 0.1, "min_heldout_tasks": 4, "min_nodes": 5, "max_overlap": 1})
    split = _split(policy, rows=[*prose, *small, *_programs(40)[30:]])
    others = {group for pair in (*prose, *small) if (group := group_of(pair)) is not None}
    usual = {group for group in others if is_held_out(group, policy)}
    trained = {group_of(pair) for pair in split.train["rows"]}

    assert sum(pair.lane is Lane.CODEGEN for pair in split.heldout) >= 4
    assert split.num_heldout_groups == split.num_evaluating_groups + len(usual)
    assert trained >= others - usual
    assert usual
    assert split.shortfall == ""


def test_rows_without_a_file_are_never_held_out() -> None:
    rows = [pair_at(_HELD[0], "p", _ANSWER.format(3), SourceKind.SYNTHETIC, template="t"), pair_at(None, "q", _OTHER)]
    split = _split(rows=rows)

    assert split.train == {"rows": rows}
    assert (split.heldout, split.num_groups) == ([], 0)


def test_rows_derived_from_a_held_out_file_are_set_aside() -> None:
    held = pair_at(_HELD[0], "p", _ANSWER.format(3))
    derived = pair_at(_HELD[0], "q", _OTHER, SourceKind.EVOLVED, template="function/x")
    free = pair_at(_FREE[0], "r", _OTHER.replace("Good", "Fine"), SourceKind.EVOLVED, template="function/x")
    split = _split(_POLICY, None, rows=[held], synthetic=[derived, free])

    assert _reasons(split) == [(SplitReason.DERIVED, _HELD[0])]
    assert split.heldout == [held]
    assert split.train == {"rows": [], "synthetic": [free]}


@pytest.mark.parametrize(
    ("prompt", "response", "reason"),
    [
        ("Sum them.", _ANSWER.format(3), SplitReason.WORDS),
        (f"Explain:\n{_ANSWER.format(3)}", _OTHER, SplitReason.WORDS),
        ("Sum them.", _RENAMED, SplitReason.STRUCTURE),
        ("Write   a TOTAL.", _OTHER, SplitReason.PROMPT),
    ],
    ids=["answer", "prompt", "renamed", "request"],
)
@pytest.mark.parametrize("path", [_FREE[0], None])
def test_a_planted_leak_is_caught(prompt: str, response: str, reason: SplitReason, path: str | None) -> None:
    held = pair_at(_HELD[0], "Write a total.", _ANSWER.format(3))
    leak, fine = pair_at(path, prompt, response), pair_at(path, "Greet me.", _UNLIKE.format(1))
    split = _split(rows=[held], more=[leak, fine])

    assert _reasons(split) == [(reason, _HELD[0])]
    assert split.train == {"rows": [], "more": [fine]}
    assert split.heldout == [held]


def test_small_programs_are_not_held_out() -> None:
    small = pair_at(_HELD[0], "p", "fn f() { }\n")
    prose = pair_at(_HELD[0], "q", "It is so.").model_copy(update={"response_mode": "prose_only", "lane": Lane.DOCS_QA})
    split = _split(rows=[small, prose])

    assert _reasons(split) == [(SplitReason.TOO_SMALL, _HELD[0])]
    assert split.heldout == [prose]


def test_a_held_out_prompt_occurs_once() -> None:
    """Two responses to one prompt would contradict each other, from one source or from two."""
    one, other, third = (pair_at(_HELD[n], "p", text) for n, text in enumerate((_ANSWER.format(3), _OTHER, _RENAMED)))
    split = _split(rows=[one, other], more=[third])

    assert split.heldout == [one]
    assert _reasons(split) == [(SplitReason.PROMPT, _HELD[1]), (SplitReason.PROMPT, _HELD[2])]


def test_repetition_is_set_aside_before_anything_is_held_out() -> None:
    repeats = ValidatePolicy(near_duplicate_threshold=0.9, max_per_source=1, max_per_template=1)
    first = pair_at(_FREE[0], "p", _OTHER)
    again = pair_at(_HELD[0], "p", _OTHER)
    near = pair_at(_FREE[1], "p", _OTHER + "\n\n")
    many = pair_at(_FREE[0], "q", _ANSWER.format(3))
    made = [pair_at(None, f"r{n}", _UNLIKE.format(n), SourceKind.SYNTHETIC, template="t") for n in range(2)]
    split = _split(_POLICY, repeats, rows=[first], more=[again, near, many], synthetic=made)

    assert _reasons(split) == [
        (SplitReason.DUPLICATE, "the same as row 1 of rows"),
        (SplitReason.NEAR_DUPLICATE, "nearly the same as row 1 of rows"),
        (SplitReason.SOURCE_CAP, f"{_FREE[0]} has given 1 rows"),
        (SplitReason.TEMPLATE_CAP, "t has given 1 rows"),
    ]
    assert split.train == {"rows": [first], "more": [], "synthetic": made[:1]}


def test_the_account_counts_everything() -> None:
    held = pair_at(_HELD[0], "p", _ANSWER.format(3))
    account = (
        _split(rows=[held, pair_at(_FREE[0], "q", _RENAMED), pair_at(_FREE[0], "r", _OTHER)]).report().model_dump()
    )

    assert account["train"] == {"rows": 1}
    assert (account["heldout"], account["num_groups"], account["num_heldout_groups"]) == (1, 2, 1)
    assert account["aside"] == {**{str(reason): 0 for reason in SplitReason}, "same_structure": 1}


def test_an_empty_split_is_allowed() -> None:
    assert _split().train == {}
    assert _split(rows=[]).train == {"rows": []}


@pytest.mark.slow
def test_the_seed_programs_are_split_without_a_leak() -> None:
    """No training row has half of the n-grams of a held-out response, and no file is on both sides."""
    lines = [line for outcome in extract_workspace(PROJECT_ROOT / "data" / "golden" / "core") for line in outcome.lines]
    with BehaviourWorkers() as workers:
        pairs = list(make_pairs((ExtractedRecord.model_validate_json(line) for line in lines), workers))
    repeats = ValidatePolicy(near_duplicate_threshold=0.9, max_per_source=60, max_per_template=60)
    split = _split(_POLICY, repeats, rows=pairs)
    judges = [ngrams_of(words_of(pair.response), NGRAM) for pair in split.heldout]
    assert len(judges) > 10
    for pair in split.train["rows"]:
        runs = ngrams_of(words_of(pair.response), NGRAM) | ngrams_of(words_of(pair.prompt), NGRAM)
        assert all(len(runs & judge) <= 0.5 * len(judge) for judge in judges)

    assert {group_of(p) for p in split.train["rows"]}.isdisjoint(group_of(p) for p in split.heldout)
    assert len({pair.prompt for pair in split.heldout}) == len(split.heldout)


def test_rows_evolved_from_a_held_out_file_are_set_aside() -> None:
    texts = [_UNLIKE.format(n) for n in range(3)]
    from_held, from_free = (
        _add_lineage(pair_at(path, path, text, SourceKind.EVOLVED), SourceKind.VOX_FILE)
        for path, text in ((_HELD[0], texts[0]), (_FREE[0], texts[1]))
    )
    from_template = _add_lineage(pair_at(_HELD[1], "t", texts[2], SourceKind.EVOLVED), SourceKind.SYNTHETIC)
    split = _split(rows=[from_held, from_free, from_template])

    assert _reasons(split) == [(SplitReason.DERIVED, _HELD[0])]
    assert split.train == {"rows": [from_free, from_template]}
    assert split.heldout == []
    assert [group_of(row) for row in (from_held, from_free, from_template)] == [_HELD[0], _FREE[0], None]


def _add_lineage(pair: TrainingPair, root_kind: SourceKind) -> TrainingPair:
    lineage = Lineage(
        parent="0", operator="deepen", generation=1, generator="m", generator_digest="0", seed=0, root_kind=root_kind
    )
    return pair.model_copy(update={"lineage": lineage})


_TESTS = """@test fn t1() { assert(spent([4, 90, 5], 10) is 9) }
@test fn t2() { assert(spent([10, 11], 10) is 10) }
@test fn t3() { assert(spent([], 3) is 0) }
@test fn t4() { assert(spent([1, 2, 3], -1) is 0) }
@test fn t5() { assert(spent([7], 7) is 7) }
"""
_SPENT = """fn spent(prices: List[int], limit: int) to int {
    let mut sum = 0
    for price in prices.filter(p => p <= limit) { sum = sum + price }
    return sum
}
"""
_COPY = """fn addUp(values: list[int], border: int) to int {
    let mut place = 0
    let mut result = 0
    while place < len(values) {
        let now = values[place]
        if not (now > border) { result += now }
        place += 1
    }
    result
}
"""
_NEAR = _COPY.replace("now > border", "now >= border")


@pytest.mark.parametrize("number", range(2))
def test_a_renamed_and_restructured_copy_of_a_task_does_not_train(number: int) -> None:
    """It passes the hidden tests of the task with a loop instead of a chain of methods."""
    task = pair_at(_HELD[0], "spent", _SPENT).model_copy(update={"tests": _TESTS})
    rows = [pair_at(_FREE[0], "sums", _COPY), pair_at(_FREE[1], "others", _NEAR)]
    scored, protected = [([task], []), ([], [task])][number]
    split = _split(protected=protected, rows=[*rows, *scored])

    assert _reasons(split) == [(SplitReason.BEHAVIOUR, _HELD[0])]
    assert [row.pair for row in split.aside] == rows[:1]
    assert split.train["rows"] == rows[1:]
    assert split.report().tested_functions == {"compared": 1, "trivial": 0, "reference_fails": 0, "without_tests": 0}
