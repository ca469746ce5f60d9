"""The program in a completion, refusals, and placeholders."""

from mens_pipeline.evaluation.judge import has_placeholder, is_refusal
from mens_pipeline.inference.generation import program_in
from mens_pipeline_tests.evaluation.benches import SHIPPED
from mens_pipeline_tests.every import every
from mens_pipeline_tests.language.examples import golden_programs

_CODE = "fn f() to int {\n    return 1\n}\n"


@every(
    "case",
    [
        (_CODE, _CODE),
        (f"```vox\n{_CODE}```", _CODE),
        (f"```\n{_CODE}```\n", _CODE),
        (f"Here it is:\n\n```vox\n{_CODE}```\n\nIt returns one.", _CODE),
        (f"~~~vox\n{_CODE}~~~", _CODE),
        (f"  ```vox\n{_CODE}  ```  \n", _CODE),
        (f"```vox\n{_CODE}````\nIt returns one.", _CODE),
        (f"````vox\n{_CODE}````", _CODE),
        (f"Cut off:\n```vox\n{_CODE}", _CODE),
        (f"```vox\nlet x = 1\n```\nor rather\n```vox\n{_CODE}```\n", _CODE),
        (f"```vox\n{_CODE}```\nor\n```vox\nlet x = 1\n```\n", _CODE),
        ("```vox\r\nlet x = 1\r\n```\r\n", "let x = 1\r\n"),
        ("````\n```\nlet x = 1\n```\n````\n", "```\nlet x = 1\n```\n"),
        ("Here:\n```vox\n```\n", ""),
        *((text, text) for text in ("", "  \n", "I would write a function.", "Use `fn` here.", "```fn f() { }```\nso")),
    ],
)
def test_the_program_is_the_longest_block_or_all(case: tuple[str, str]) -> None:
    completion, program = case
    assert program_in(completion) == program


@every(
    "completion",
    [
        *("I'm sorry, but no.", "I\u2019m unable to do that.", "I am not able to.", "I cannot help."),
        *("Sadly I can't.", "I can\u2019t.", "As an AI I do not write Vox.", "as a language model, no"),
    ],
)
def test_recognizes_refusals(completion: str) -> None:
    assert is_refusal(completion)


@every("completion", ["", _CODE, "You can do this.", "It is not able to fail."])
def test_accepts_completions_that_are_not_refusals(completion: str) -> None:
    assert not is_refusal(completion)


@every(
    "comment",
    [
        *("// TODO: implement", "# FIXME later", "// todo", "// todo: write this", "// Placeholder", "// stub."),
        *("// Not implemented", "// not yet implemented", "// your code here", "// Your code goes here"),
        *("// ... rest of the code", "// a stub implementation", "// TBD", "// coming soon"),
    ],
)
def test_a_placeholder_comment_is_a_placeholder(comment: str) -> None:
    assert has_placeholder(f"fn f() to int {{\n    {comment}\n    return 1\n}}\n")


@every(
    "program",
    [
        "",
        _CODE,
        '@table type Todo { title: str }\nfn todo() to str { return "TODO" }\n',
        "// Todo items of one person.\n" + _CODE,
        "// The placeholder of the search box.\n" + _CODE,
        "// Tears the stub off a ticket.\n" + _CODE,
    ],
)
def test_ordinary_words_are_not_placeholders(program: str) -> None:
    assert not has_placeholder(program)


def test_no_program_of_ours_has_a_placeholder() -> None:
    solutions = {path.name: path.read_text(encoding="utf-8") for path in SHIPPED.glob("solutions/*")}
    programs = {**golden_programs(), **solutions}

    assert [name for name, program in programs.items() if has_placeholder(program)] == []
