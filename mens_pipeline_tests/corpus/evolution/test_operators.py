"""How requests are evolved."""

from random import Random

from mens_pipeline.corpus.evolution.operators import REWRITER, Evolution, EvolutionPrompts, Operator, draw_evolution
from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.language import Mode
from mens_pipeline_tests.corpus.evolution.scripted import Scripted, function_seed, good
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.examples import parse

_EXAMPLES = {"table": "@table type T { a: int }", "workflow": "workflow w() { }", "const": "let x = 1"}


def _draw_all(construct: str, mode: Mode = Mode.SOURCE) -> set[Evolution]:
    return {draw_evolution(Random(seed), construct, mode, _EXAMPLES) for seed in range(400)}  # noqa: S311 - no secret


def test_every_operator_is_drawn_for_a_function() -> None:
    drawn = _draw_all("function")

    assert {evolution.operator for evolution in drawn} == set(Operator)
    assert {evolution.goal for evolution in drawn} == {None, "table", "workflow"}


def test_only_applicable_operators_are_drawn() -> None:
    component = {evolution.operator for evolution in _draw_all("component")}
    members = {evolution.operator for evolution in _draw_all("reactive_module", Mode.UI)}

    assert not component & {Operator.CONTRACTS, Operator.TESTS, Operator.ERROR_HANDLING}
    assert members == {
        *(Operator.ADD_CONSTRAINTS, Operator.DEEPEN, Operator.CONCRETISE, Operator.REASONING, Operator.BREADTH)
    }
    assert Operator.HARDER_CONSTRUCT not in {evolution.operator for evolution in _draw_all("workflow")}


@every_row(
    (Evolution(Operator.DEEPEN), "fn f() { }", None),
    (Evolution(Operator.HARDER_CONSTRUCT, "table"), "@table type T { a: int }", "type T { a: int }"),
    (Evolution(Operator.ERROR_HANDLING), "fn f() to Option[int] { return None }", "fn f() { }"),
    (Evolution(Operator.ERROR_HANDLING), "fn f() { let a = g()? }", "fn f() { let a = g() }"),
    (Evolution(Operator.CONTRACTS), "@require(a > 0) fn f(a: int) { }", "@pure fn f(a: int) { }"),
    (Evolution(Operator.TESTS), "@test fn f() { }", "fn f() { }"),
    (Evolution(Operator.TESTS), "@forall fn f(a: int) { }", "fn f() { }"),
)
def test_a_program_shows_the_goal_of_its_operator(evolution: Evolution, shown: str, missing: str | None) -> None:
    for program, expected in ((shown, True), (missing, False)):
        if program is not None:
            module = parse(program)
            assert evolution.is_shown(module) is expected


def test_a_prompt_states_the_task_and_shows_the_seed() -> None:
    prompts = EvolutionPrompts(Scripted(good), 0, _EXAMPLES)
    seed = function_seed(0)
    evolution = Evolution(Operator.HARDER_CONSTRUCT, "table")
    first, second = prompts.ask_to_rewrite(seed, evolution), prompts.ask_to_complete(seed, evolution, "Write it.")
    breadth = prompts.ask_to_rewrite(seed, Evolution(Operator.BREADTH))

    assert first.system == REWRITER
    assert "It stays a request for a function in Vox. Ask for a table as well" in first.prompt
    assert first.prompt.endswith(f"The request:\n{seed.prompt}")
    assert "asks for a function in Vox as well. Choose another subject" in breadth.prompt
    assert second.system == SYSTEM_PROMPT
    assert second.prompt.startswith("Write it.\n\nThe program declares a table too.\n\n")
    assert f"```vox\n{seed.response}```" in second.prompt
    assert "And this shows a table:\n\n```vox\n@table type T { a: int }\n```" in second.prompt
    assert "\n\n\n" not in prompts.ask_to_complete(seed, Evolution(Operator.DEEPEN), "Write it.").prompt


def test_the_key_of_a_request_covers_all_inputs_of_its_reply() -> None:
    seed, evolution = function_seed(0), Evolution(Operator.DEEPEN)
    keys = [
        EvolutionPrompts(generator, number, {}).ask_to_rewrite(seed, evolution).key
        for generator, number in (
            (Scripted(good), 0),
            (Scripted(good), 1),
            (Scripted(good, name="other"), 0),
            (Scripted(good, digest="1"), 0),
            (Scripted(good, decoding={"temperature": 1.0}), 0),
        )
    ]

    assert len(set(keys)) == len(keys)
    assert EvolutionPrompts(Scripted(good), 0, {}).ask_to_rewrite(seed, evolution).key == keys[0]
