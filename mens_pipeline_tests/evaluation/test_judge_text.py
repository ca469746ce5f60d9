"""The program in a completion, refusals, and placeholders."""

import pytest

from mens_pipeline.evaluation.judge import has_placeholder, is_refusal
from mens_pipeline.inference.generation import program_in
from mens_pipeline_tests.evaluation.benches import SHIPPED
from mens_pipeline_tests.language.examples import golden_programs

_CODE = "fn f() to int {\n    return 1\n}\n"


@pytest.mark.parametrize(
    "completion",
    [
        _CODE,
        f"```vox\n{_CODE}```",
        f"```\n{_CODE}```\n",
        f"Here it is:\n\n```vox\n{_CODE}```\n\nIt returns one.",
        f"~~~vox\n{_CODE}~~~",
        f"  ```vox\n{_CODE}  ```  \n",
        f"```vox\n{_CODE}````\nIt returns one.",
        f"````vox\n{_CODE}````",
        f"Cut off:\n```vox\n{_CODE}",
        f"```vox\nlet x = 1\n```\nor rather\n```vox\n{_CODE}```\n",
        f"```vox\n{_CODE}```\nor\n```vox\nlet x = 1\n```\n",
    ],
    ids=[
        *("bare", "fenced", "no language", "prose around", "tildes", "indented", "longer end", "longer fence"),
        *("not closed", "second is longest", "first is longest"),
    ],
)
def test_the_program_is_the_longest_block_or_all(completion: str) -> None:
    assert program_in(completion) == _CODE


def test_windows_line_ends_close_a_block() -> None:
    assert program_in("```vox\r\nlet x = 1\r\n```\r\n") == "let x = 1\r\n"


@pytest.mark.parametrize(
    "completion", ["", "  \n", "I would write a function.", "Use `fn` here.", "```fn f() { }```\nso"]
)
def test_without_a_block_all_is_the_program(completion: str) -> None:
    assert program_in(completion) == completion


def test_a_shorter_fence_does_not_close_a_block() -> None:
    assert program_in("````\n```\nlet x = 1\n```\n````\n") == "```\nlet x = 1\n```\n"


def test_an_empty_block_is_an_empty_program() -> None:
    assert program_in("Here:\n```vox\n```\n") == ""


@pytest.mark.parametrize(
    "completion",
    [
        *("I'm sorry, but no.", "I\u2019m unable to do that.", "I am not able to.", "I cannot help."),
        *("Sadly I can't.", "I can\u2019t.", "As an AI I do not write Vox.", "as a language model, no"),
    ],
)
def test_refusals_are_known(completion: str) -> None:
    assert is_refusal(completion)


@pytest.mark.parametrize("completion", ["", _CODE, "You can do this.", "It is not able to fail."])
def test_what_is_no_refusal(completion: str) -> None:
    assert not is_refusal(completion)


@pytest.mark.parametrize(
    "comment",
    [
        *("// TODO: implement", "# FIXME later", "// todo", "// todo: write this", "// Placeholder", "// stub."),
        *("// Not implemented", "// not yet implemented", "// your code here", "// Your code goes here"),
        *("// ... rest of the code", "// a stub implementation", "// TBD", "// coming soon"),
    ],
)
def test_a_placeholder_comment_is_a_placeholder(comment: str) -> None:
    assert has_placeholder(f"fn f() to int {{\n    {comment}\n    return 1\n}}\n")


@pytest.mark.parametrize(
    "program",
    [
        "",
        _CODE,
        '@table type Todo { title: str }\nfn todo() to str { return "TODO" }\n',
        "// Todo items of one person.\n" + _CODE,
        "// The placeholder of the search box.\n" + _CODE,
        "// Tears the stub off a ticket.\n" + _CODE,
    ],
    ids=["empty", "plain", "names and strings", "to-do list", "text field", "ticket"],
)
def test_ordinary_words_are_no_placeholder(program: str) -> None:
    assert not has_placeholder(program)


def test_no_program_of_ours_has_a_placeholder() -> None:
    solutions = {path.name: path.read_text(encoding="utf-8") for path in SHIPPED.glob("solutions/*")}
    programs = {**golden_programs(), **solutions}

    assert [name for name, program in programs.items() if has_placeholder(program)] == []
