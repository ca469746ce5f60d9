"""Log-probabilities and grammars, as OpenAI's own client requests them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from mens_pipeline.inference.generation import is_program
from mens_pipeline.language import Mode
from mens_pipeline.language.grammar.export import GrammarFormat, grammar_text
from mens_pipeline.serving.generation import ScoredToken
from mens_pipeline.serving.openai import format_chat_tokens
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline_tests.serving.running import Running, running

_ASK: Any = [{"role": "user", "content": "Write a function."}]


@pytest.fixture(scope="module")
def roomy(merged: Path) -> Iterator[Running]:
    """A server that accepts requests with a whole grammar in them."""
    with running(merged, ServerLimits(4, 100_000, 60.0, 400)) as server:
        yield server


def _chat(server: Running, **options: Any) -> Any:
    asked = {"model": "mens", "messages": _ASK, "max_tokens": 16, **options}
    return server.openai().chat.completions.create(**asked)


def _list_tokens(choice: Any) -> list[Any]:
    return [*choice.logprobs.content]


def _join_ascii(tokens: list[Any]) -> bytes:
    """Join the ASCII characters of tokens; random weights also write halves of others, which have no text."""
    return "".join(token.token for token in tokens).encode("ascii", "ignore")


def test_reports_every_token_of_a_completion(server: Running) -> None:
    reply = _chat(server, logprobs=True, top_logprobs=3)
    choice = reply.choices[0]
    tokens = _list_tokens(choice)

    assert len(tokens) == reply.usage.completion_tokens == 16
    assert _join_ascii(tokens) == choice.message.content.encode("ascii", "ignore")
    for token in tokens:
        others = [other.logprob for other in token.top_logprobs]
        assert len(others) == 3
        assert others == sorted(others, reverse=True)
        assert token.logprob == others[0] <= 0
        assert token.bytes is None or bytes(token.bytes).decode() == token.token


def test_a_stream_reports_the_same_tokens(server: Running) -> None:
    whole = _list_tokens(_chat(server, logprobs=True, top_logprobs=1).choices[0])
    chunks = [chunk.choices[0] for chunk in _chat(server, logprobs=True, top_logprobs=1, stream=True)]
    streamed = [token for choice in chunks if choice.logprobs for token in _list_tokens(choice)]

    assert [(token.token, token.top_logprobs[0].token) for token in streamed] == [
        (token.token, token.top_logprobs[0].token) for token in whole
    ]
    assert [token.logprob for token in streamed] == pytest.approx([token.logprob for token in whole], abs=1e-4)


def test_reports_log_probabilities_only_on_request(server: Running) -> None:
    assert _chat(server).choices[0].logprobs is None
    assert _chat(server, logprobs=False).choices[0].logprobs is None
    assert all(token.top_logprobs == [] for token in _list_tokens(_chat(server, logprobs=True).choices[0]))


def test_a_chosen_completion_reports_its_own_tokens(server: Running) -> None:
    choice = _chat(server, logprobs=True, seed=5, extra_body={"best_of": 3}).choices[0]

    assert _join_ascii(_list_tokens(choice)) == choice.message.content.encode("ascii", "ignore")


def test_a_constrained_completion_reports_its_own_tokens(server: Running) -> None:
    choice = _chat(server, logprobs=True, extra_body={"decoding": "fallback"}).choices[0]

    assert choice.decoding == "constrained"
    assert _join_ascii(_list_tokens(choice)) == choice.message.content.encode("ascii", "ignore")


def test_text_completions_report_tokens_in_their_own_format(server: Running) -> None:
    asked: Any = {"model": "mens", "prompt": "fn twice(n: int) to int {", "max_tokens": 12, "logprobs": 2}
    whole = server.openai().completions.create(**asked).choices[0]
    pieces = [chunk.choices[0] for chunk in server.openai().completions.create(**asked, stream=True)]
    streamed = [details for piece in pieces if piece.logprobs for details in piece.logprobs.tokens]
    offsets = [details for piece in pieces if piece.logprobs for details in piece.logprobs.text_offset]

    assert "".join(whole.logprobs.tokens) == whole.text
    assert {len(others) for others in whole.logprobs.top_logprobs} <= {1, 2}
    assert [max(others.values()) for others in whole.logprobs.top_logprobs] == whole.logprobs.token_logprobs
    assert whole.logprobs.text_offset[0] == 0
    assert (streamed, offsets) == (whole.logprobs.tokens, whole.logprobs.text_offset)


def test_an_infinite_log_probability_is_reported_as_a_number() -> None:
    (token,) = format_chat_tokens([ScoredToken("\ufffd", float("-inf"))])["content"]

    assert (token["logprob"], token["bytes"]) == (-9999.0, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "grammar", "grammar": "vox"}},
        {"extra_body": {"guided_grammar": grammar_text(GrammarFormat.LARK)}},
        {"extra_body": {"grammar": grammar_text(GrammarFormat.GBNF), "decoding": None}},
        {"extra_body": {"structured_outputs": {"grammar": "vox"}, "response_format": {"type": "text"}}},
    ],
    ids=["response format", "vllm", "llama.cpp", "newer vllm"],
)
def test_a_request_with_the_vox_grammar_gets_a_program(roomy: Running, fields: dict[str, Any]) -> None:
    choice = _chat(roomy, **fields).choices[0]

    assert choice.decoding == "constrained"
    assert is_program(choice.message.content, Mode.SOURCE)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"guided_grammar": 'root ::= "a"'}, "guided_grammar: not the Vox grammar, the only one that this server"),
        ({"grammar": grammar_text(GrammarFormat.LARK, is_ui=True)}, "grammar: not the Vox grammar"),
        ({"guided_grammar": ["vox"]}, "guided_grammar: not the Vox grammar"),
        ({"structured_outputs": {"json": {}}}, 'structured_outputs: only "grammar" is supported'),
        ({"response_format": {"type": "grammar"}}, 'response_format: only "grammar" is supported'),
        ({"response_format": "grammar"}, "response_format: completions are Vox programs"),
        ({"guided_grammar": "vox", "decoding": "free"}, "decoding: free, but a grammar is requested"),
        ({"guided_grammar": "vox", "decoding": "other"}, "decoding: "),
    ],
)
def test_another_grammar_is_refused(roomy: Running, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        _chat(roomy, extra_body=fields)
