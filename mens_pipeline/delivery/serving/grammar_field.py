"""Fields of other servers that ask for a grammar: there is one here, that of Vox, which the parser stands for."""

from functools import cache
from typing import Any, Final

from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.language.grammar.export import GrammarFormat, grammar_text

OURS: Final = "vox"
"""Says the grammar by its name."""

_FIELDS: Final = ("response_format", "structured_outputs", "guided_grammar", "grammar")
_IDLE_FORMAT: Final = {"type": "text"}
_ADVICE: Final = f'Send "{OURS}", or what `mens grammar` of this version prints.'


def with_grammar(values: Any) -> Any:
    """Turn the fields of a request that ask for a grammar into `decoding`.

    `guided_grammar` is of vLLM, as is `structured_outputs`; `grammar` is of llama.cpp. In all of them, and in
    `response_format` of type `grammar`, the name or the whole text of the grammar may stand.

    Raises:
        ValueError: Another grammar or form of an answer is asked for, or `decoding` says otherwise.
    """
    if not isinstance(values, dict):
        return values
    asked = {name: _grammar_in(name, values[name]) for name in _FIELDS if values.get(name) is not None}
    kept = {name: value for name, value in values.items() if name not in _FIELDS}
    for name, grammar in asked.items():
        if grammar is not None and not _is_ours(grammar):
            raise ValueError(f"{name}: not the grammar of Vox, and this server knows no other. {_ADVICE}")
    if any(grammar is not None for grammar in asked.values()):
        # A fallback ends with a program as well.
        if kept.get("decoding") == Syntax.FREE:
            raise ValueError("decoding: free, and a grammar is asked for; leave one of them out")
        return {**kept, "decoding": kept.get("decoding") or str(Syntax.CONSTRAINED)}
    return kept


def _grammar_in(name: str, value: Any) -> Any:
    """Return the grammar that a field asks for; None where it asks for nothing."""
    if name in {"guided_grammar", "grammar"}:
        return value or None
    if name == "response_format" and value == _IDLE_FORMAT:
        return None
    if name == "response_format" and (not isinstance(value, dict) or value.get("type") != "grammar"):
        raise ValueError('response_format: answers are Vox programs; its type is "text" or "grammar"')
    if not isinstance(value, dict) or value.keys() - {"type"} != {"grammar"}:
        raise ValueError(f'{name}: beside "grammar" there is nothing to choose here. {_ADVICE}')
    return value["grammar"]


def _is_ours(grammar: Any) -> bool:
    return isinstance(grammar, str) and grammar.strip() in _own_texts()


@cache
def _own_texts() -> frozenset[str]:
    return frozenset((OURS, *(grammar_text(notation).strip() for notation in GrammarFormat)))
