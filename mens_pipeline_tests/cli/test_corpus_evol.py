"""`mens corpus evol`: its gate, and its requests over HTTP."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from mens_pipeline.corpus.evolution.operators import REWRITER, ModelRequest
from mens_pipeline.corpus.schema.records import SourceKind, parsed_code, read_pairs
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.language import analyze
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.cli.invoking import invoke, refusal, run_main
from mens_pipeline_tests.corpus.evolution.scripted import function_seeds, good
from mens_pipeline_tests.openai_server import Served, completion, serving

_KEY = "sk-a-secret-of-ours"
_NUM_SEEDS = 12


def _invoke(*arguments: str | Path) -> Result:
    return invoke("corpus", "evol", *arguments)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some seeds, an open gate, a key."""
    monkeypatch.setenv("EVOL_GATE", "1")
    monkeypatch.setenv("MENS_EVOL_API_KEY", _KEY)
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    write_jsonl(tmp_path / "pairs.jsonl", function_seeds(_NUM_SEEDS))
    return tmp_path


def _as_request(content: dict[str, Any]) -> ModelRequest:
    system, user = (message["content"] for message in content["messages"])
    return ModelRequest(f"{content['seed']:08x}" * 8, system, user)


@pytest.mark.seed_row(11, 33)
@pytest.mark.parametrize("value", [None, "0"])
def test_the_gate_is_closed_without_the_variable(
    folder: Path, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVOL_GATE")
    if value is not None:
        monkeypatch.setenv("EVOL_GATE", value)
    done = run_main("corpus", "evol", "pairs.jsonl", "-o", "out.jsonl", "--endpoint", "http://x/v1", folder=folder)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("mens: EVOL_GATE: not set")
    assert "Set EVOL_GATE=1" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["pairs.jsonl"]


def _reply_in_turn(content: dict[str, Any], number: int) -> Served:
    request = _as_request(content)
    if number == 0:
        return Served(429, {"error": "slow down"}, {"Retry-After": "0"})
    if request.system == REWRITER:
        return completion(good(request))
    program = re.findall(r"```vox\n(.*?)```", request.prompt, re.DOTALL)[0]
    copy = re.sub(r"fn f\w+", f"fn {re.findall(r'`(g[0-9a-f]+)`', request.prompt)[0]}", program)
    completions = [good(request), "```vox\nfn f(\n```", f"```\n{copy}```", "I cannot help with that."]
    return completion(completions[number // 2 % 4])


@pytest.mark.seed_row(11)
def test_good_rows_of_an_endpoint_are_kept(folder: Path) -> None:
    out, aside = folder / "out.jsonl", folder / "dropped.jsonl"
    with serving(_reply_in_turn) as server:
        arguments = (folder / "pairs.jsonl", "-o", out, "--endpoint", server.url, "--name", "m", "--concurrency", "1")
        result = _invoke(*arguments, "--generations", "1", "--dropped", aside)
    rows = list(read_pairs(out))
    reasons = [json.loads(line)["reason"] for line in aside.read_text().splitlines()]

    assert result.exit_code == 0, result.output
    assert len(server.requests) == 1 + 2 * _NUM_SEEDS
    assert len(rows) + len(reasons) == _NUM_SEEDS
    assert {"rejected", "bad_reply"} < set(reasons) <= {"rejected", "bad_reply", "repeated", "not_as_asked"}
    assert rows
    assert all(row.lineage and row.lineage.generator_digest == server.url for row in rows)
    assert {row.source.kind for row in rows if row.source} == {SourceKind.EVOLVED}
    assert all(analyze(*code).ok for row in rows if (code := parsed_code(row)))
    assert {request["headers"]["Authorization"] for request in server.requests} == {f"Bearer {_KEY}"}
    assert _KEY not in "".join(path.read_text() for path in folder.glob("*.jsonl")) + result.output
    assert f"{2 * _NUM_SEEDS} requests, {2 * _NUM_SEEDS} of them new" in result.stdout
    assert result.stdout.splitlines()[-1] == f"{len(rows)} pairs in {out}"


def test_the_account_adds_up_and_no_request_is_sent_twice(folder: Path) -> None:
    out = folder / "out.jsonl"
    with serving(_reply_in_turn) as server:
        arguments = (folder / "pairs.jsonl", "-o", out, "--endpoint", server.url, "--name", "m", "--json")
        first, before = json.loads(_invoke(*arguments).stdout), out.read_bytes()
        num_asked = len(server.requests)
        second = json.loads(_invoke(*arguments).stdout)

    assert first["seen"] == first["kept"] + sum(first["dropped"].values())
    assert first["num_seeds"] == _NUM_SEEDS
    assert first["num_requests"] == first["num_new_requests"] == num_asked - 1
    assert second == {**first, "num_new_requests": 0}
    assert len(server.requests) == num_asked
    assert out.read_bytes() == before


def test_a_failing_endpoint_loses_no_reply(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def respond(content: dict[str, Any], number: int) -> Served:
        if number == 7 and not asked:
            asked.append(number)
            return Served(400, {"error": "no"})
        return completion(good(_as_request(content)))

    out = folder / "out.jsonl"
    with serving(respond) as server:
        monkeypatch.setenv("MENS_EVOL_URL", server.url)
        monkeypatch.setenv("MENS_EVOL_MODEL", "m")
        broken = _invoke(folder / "pairs.jsonl", "-o", out, "--concurrency", "1")
        assert not out.exists()
        num_paid, num_asked = len((folder / "out.ledger.jsonl").read_text().splitlines()), len(server.requests)
        account = json.loads(_invoke(folder / "pairs.jsonl", "-o", out, "--concurrency", "1", "--json").stdout)

    assert "status 400" in refusal(broken, RefusedError)
    assert num_paid == num_asked - 1 >= 7
    assert account["num_requests"] == account["num_new_requests"] + num_paid == len(server.requests) - 1
    assert account["kept"] > 0


def test_rows_near_held_out_pairs_are_dropped(folder: Path) -> None:
    out, second = folder / "out.jsonl", folder / "second.jsonl"
    with serving(lambda content, _number: completion(good(_as_request(content)))) as server:
        base = (folder / "pairs.jsonl", "--endpoint", server.url, "--name", "m", "--generations", "1")
        kept = json.loads(_invoke(*base, "-o", out, "--json").stdout)["kept"]
        account = json.loads(
            _invoke(*(*base, "-o", second, "--heldout", out, "--ledger", folder / "out.ledger.jsonl", "--json")).stdout
        )

    assert kept > 0
    assert account["dropped"]["near_held_out"] == kept
    assert account["kept"] == 0
    assert account["num_new_requests"] == 0


@pytest.mark.parametrize("options", [(), ("--endpoint", "https://host/v1")])
def test_a_model_must_be_named(folder: Path, options: tuple[str, ...]) -> None:
    result = _invoke(folder / "pairs.jsonl", "-o", folder / "out.jsonl", *options)

    assert "No model is set. Pass --endpoint URL and --name MODEL" in refusal(result, ConfigurationError)


def test_an_interrupted_command_says_how_to_resume(folder: Path) -> None:
    def respond(content: dict[str, Any], number: int) -> Served:
        if number == 3:
            import _thread  # noqa: PLC0415 - as Ctrl-C would

            _thread.interrupt_main()
        return completion(good(_as_request(content)))

    out = folder / "out.jsonl"
    # A shell starts background jobs with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with serving(respond) as server:
            result = _invoke(folder / "pairs.jsonl", "-o", out, "--endpoint", server.url, "--name", "m")
    finally:
        signal.signal(signal.SIGINT, before)

    assert result.exit_code == 130
    assert "run the same command to resume" in result.stderr
    assert not out.exists()
    # The ledger also has the requests that were in flight at the interrupt.
    assert len((folder / "out.ledger.jsonl").read_text().splitlines()) == len(server.requests)


def test_seeds_and_replies_are_not_overwritten(folder: Path) -> None:
    seeds, before = folder / "pairs.jsonl", (folder / "pairs.jsonl").read_bytes()
    for words in (("-o", seeds), ("-o", folder / "out.jsonl", "--dropped", folder / "out.ledger.jsonl")):
        result = _invoke(seeds, *words, "--endpoint", "https://h/v1", "--name", "m")
        assert "Name another file" in refusal(result, ConfigurationError)
    assert seeds.read_bytes() == before
