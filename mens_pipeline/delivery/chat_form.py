"""Prompt format for other engines: the chat template of the merged folder, and the Modelfile that Ollama reads."""

import re
from typing import Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.training.chat import IM_END, IM_START, opening_of, template_behind

MODELFILE: Final = "Modelfile"

_HEAD: Final = "{% if not messages or messages[0]['role'] != 'system' %}" + f"{{{{ '{IM_START}system\\n"
_TAIL: Final = f"{IM_END}\\n' }}}}" + "{% endif %}"
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def template_with(system: str, template: str | None = None) -> str:
    """Build the chat template of a model, which begins with its system prompt where a conversation brings none.

    A model that is asked without the prompt that it was trained with answers worse, and most clients send none.

    Returns:
        A Jinja template; one request gives the text of `render_prompt`.
    """
    literal = system.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return _HEAD + literal + _TAIL + template_behind(opening_of(template))


def system_of(template: str) -> str | None:
    """Return the system prompt that a chat template of ours begins with; None where it is none of ours."""
    tail = _TAIL + template_behind(opening_of(template))
    literal = template.removeprefix(_HEAD).removesuffix(tail)
    system = _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], literal)
    return system if template_with(system, template) == template else None


def refuse_unquotable(system: str) -> None:
    """Check that a system prompt can stand in the Modelfile of Ollama, which knows no way to escape a quote.

    Raises:
        RefusedError: It holds three double quotes in a row, or ends with one.
    """
    if '"""' in f'{system}"""'[:-1]:
        found = "the system prompt holds three double quotes in a row, or ends with one"
        raise RefusedError(f"{MODELFILE}: {found}. Merge without --gguf, or train with another system prompt.")


def modelfile(gguf: str, system: str, context_length: int) -> str:
    """Write what Ollama needs to serve a GGUF file beside it: form, stop token, system prompt; greedy, as judged.

    Raises:
        RefusedError: The system prompt would end its place in the file early, and go on as instructions.
    """
    refuse_unquotable(system)
    template = (
        f"{{{{ if .System }}}}{IM_START}system\n{{{{ .System }}}}{IM_END}\n{{{{ end }}}}"
        f"{{{{ if .Prompt }}}}{IM_START}user\n{{{{ .Prompt }}}}{IM_END}\n{{{{ end }}}}"
        f"{IM_START}assistant\n{{{{ .Response }}}}{IM_END}\n"
    )
    lines = (
        f"FROM ./{gguf}",
        f'TEMPLATE """{template}"""',
        f'SYSTEM """{system}"""',
        f'PARAMETER stop "{IM_END}"',
        f'PARAMETER stop "{IM_START}"',
        "PARAMETER temperature 0",
        f"PARAMETER num_ctx {context_length}",
    )
    return "\n".join(lines) + "\n"
