"""The figures of a server."""

from prometheus_client.parser import text_string_to_metric_families

from mens_pipeline_tests.serving.running import Running


def _figures(server: Running) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    with server.http() as client:
        text = client.get("/metrics").text
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}


def test_tokens_requests_and_completions_are_counted(server: Running) -> None:
    """What a client was told of its usage is what the figures grow by."""
    before = _figures(server)
    with server.openai() as client:
        reply = client.chat.completions.create(
            model="mens", messages=[{"role": "user", "content": "Write a table."}], n=2, max_tokens=7
        )
    after = _figures(server)
    usage = reply.usage
    assert usage is not None

    def grown(name: str, **labels: str) -> float:
        key = (name, tuple(sorted(labels.items())))
        return after[key] - before.get(key, 0.0)

    assert grown("mens_tokens_total", of="completion") == usage.completion_tokens
    assert grown("mens_tokens_total", of="computed") >= usage.completion_tokens
    assert grown("mens_tokens_total", of="prompt") == 2 * usage.prompt_tokens
    assert grown("mens_completions_total", decoding="free", reason="length") == 2
    assert grown("mens_request_seconds_count", path="/v1/chat/completions", status="200") == 1
    assert after["mens_completions_waiting", ()] == after["mens_completions_written", ()] == 0


def test_clients_make_no_series(server: Running) -> None:
    """A path that there is not counts with all others of its kind."""
    with server.http() as client:
        for name in ("a", "b", "c"):
            client.get(f"/no/{name}")
    paths = {dict(labels).get("path") for _, labels in _figures(server)}

    assert "other" in paths
    assert not any(path is not None and path.startswith("/no") for path in paths)


def test_figures_want_the_token(server: Running) -> None:
    """They say what is asked for; who looks after a server has its token."""
    with server.http(headers={}) as client:
        assert client.get("/metrics").status_code == 401
