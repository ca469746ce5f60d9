"""The template of the merged folder and the Modelfile format a request as training does."""

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mens_pipeline.delivery.gguf import format_modelfile
from mens_pipeline.errors import RefusedError
from mens_pipeline.models.chat import (
    CHATML,
    GEMMA,
    LLAMA3,
    MISTRAL,
    TEMPLATE,
    ChatFormat,
    find_system_prompt,
    render_prompt,
)


def _render(system: str, *messages: tuple[str, str]) -> str:
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False).from_string(  # noqa: S701
        CHATML.template(system)
    )
    turns = [{"role": role, "content": content} for role, content in messages]
    return template.render(messages=turns, add_generation_prompt=True)


@pytest.mark.parametrize("system", ["You write Vox.", 'It\'s "Vox",\nand C:\\vox\\new.', "{{ not }} {% code %}"])
def test_a_lone_request_gets_the_system_prompt(system: str) -> None:
    assert _render(system, ("user", "Write `f`.")) == render_prompt(system, "Write `f`.")


@given(st.text())
def test_finds_the_system_prompt_of_a_template(system: str) -> None:
    assert find_system_prompt(CHATML.template(system)) == system


@pytest.mark.parametrize(
    "template", ["", TEMPLATE, "{{ messages }}", CHATML.template("s")[1:], CHATML.template("s") + " "]
)
def test_finds_no_system_prompt_in_another_template(template: str) -> None:
    assert find_system_prompt(template) is None


def test_a_system_prompt_of_the_client_is_kept() -> None:
    assert _render("ours", ("system", "theirs"), ("user", "x")) == render_prompt("theirs", "x")


def test_formats_a_conversation() -> None:
    text = _render("s", ("user", "a"), ("assistant", "b"), ("user", "c"))

    assert text == (
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_modelfile_contains_everything_that_ollama_needs() -> None:
    assert format_modelfile("vox-f16.gguf", "You write Vox.", 8192) == (
        "FROM ./vox-f16.gguf\n"
        'TEMPLATE """{{ if .System }}<|im_start|>system\n{{ .System }}<|im_end|>\n{{ end }}'
        "{{ if .Prompt }}<|im_start|>user\n{{ .Prompt }}<|im_end|>\n{{ end }}"
        '<|im_start|>assistant\n{{ .Response }}<|im_end|>\n"""\n'
        'SYSTEM """You write Vox."""\n'
        'PARAMETER stop "<|im_end|>"\n'
        'PARAMETER stop "<|im_start|>"\n'
        "PARAMETER temperature 0\n"
        "PARAMETER num_ctx 8192\n"
    )


@pytest.mark.threat("M6")
@pytest.mark.parametrize("system", ['x"""\nFROM ./other.gguf\nSYSTEM """y', 'ends with "', '"""', '""'])
def test_a_system_prompt_cannot_add_an_instruction(system: str) -> None:
    with pytest.raises(RefusedError, match=r"three double quotes in a row, or ends with one\. Merge without --gguf"):
        format_modelfile("vox-f16.gguf", system, 8192)
    assert 'SYSTEM """say "x" and ""y"""' in format_modelfile("vox-f16.gguf", 'say "x" and ""y', 8192)


@pytest.mark.parametrize(
    ("chat", "template", "stops"),
    [
        (
            LLAMA3,
            (
                "{{ if .System }}<|start_header_id|>system<|end_header_id|>\n\n{{ .System }}<|eot_id|>{{ end }}"
                "{{ if .Prompt }}<|start_header_id|>user<|end_header_id|>\n\n{{ .Prompt }}<|eot_id|>{{ end }}"
                "<|start_header_id|>assistant<|end_header_id|>\n\n{{ .Response }}<|eot_id|>"
            ),
            ("<|eot_id|>", "<|end_header_id|>", "<|start_header_id|>"),
        ),
        (
            GEMMA,
            (
                "{{ if .Prompt }}<start_of_turn>user\n{{ if .System }}{{ .System }}\n\n{{ end }}{{ .Prompt }}"
                "<end_of_turn>\n{{ end }}<start_of_turn>model\n{{ .Response }}<end_of_turn>\n"
            ),
            ("<end_of_turn>", "<start_of_turn>"),
        ),
        (
            MISTRAL,
            (
                "{{ if .Prompt }}[INST]{{ if .System }}{{ .System }}\n\n{{ end }}{{ .Prompt }}[/INST]{{ end }}"
                "{{ .Response }}</s>"
            ),
            ("</s>", "[/INST]", "[INST]"),
        ),
    ],
)
def test_a_modelfile_has_the_format_of_the_base(chat: ChatFormat, template: str, stops: tuple[str, ...]) -> None:
    text = format_modelfile("vox.gguf", "s", 8192, chat)

    assert f'TEMPLATE """{template}"""\n' in text
    assert "".join(f'PARAMETER stop "{stop}"\n' for stop in stops) in text
