"""Metrics of a server."""

from mens_pipeline_tests.serving.running import Running


def test_tokens_requests_and_completions_are_counted(server: Running) -> None:
    before = server.figures()
    with server.openai() as client:
        reply = client.chat.completions.create(
            model="mens", messages=[{"role": "user", "content": "Write a table."}], n=2, max_tokens=7
        )
    after = server.figures()
    usage = reply.usage
    assert usage is not None

    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    assert grown["mens_tokens_total completion"] == usage.completion_tokens
    assert grown["mens_tokens_total computed"] >= usage.completion_tokens
    assert grown["mens_tokens_total prompt"] == 2 * usage.prompt_tokens
    assert grown["mens_completions_total free length"] == 2
    assert grown["mens_request_seconds_count /v1/chat/completions 200"] == 1
    assert after["mens_completions_waiting"] == after["mens_completions_written"] == 0


def test_unknown_paths_create_no_series(server: Running) -> None:
    with server.http() as client:
        for name in ("a", "b", "c"):
            client.get(f"/no/{name}")
    figures = server.figures()

    assert figures["mens_request_seconds_count other 404"] >= 3
    assert not any(" /no" in name for name in figures)
