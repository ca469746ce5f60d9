"""The page at `/`: a person sends a prompt, and sees the program, its errors and its tests."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from mens_pipeline.serving.application import _add_playground
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline_tests.firefox import FIREFOX, Page, firefox
from mens_pipeline_tests.serving.running import TOKEN, Running

_TAB, _ESCAPE = "\ue004", "\ue00c"
"""Keys, as WebDriver names them."""
_NEEDS_FIREFOX = pytest.mark.skipif(
    FIREFOX is None, reason="no Firefox on this machine; on Debian: apt install firefox-esr"
)
_PROGRAM = """fn double(n: int) to int { return n + n }
@test fn test_double() { assert(double(2) is 4) }
@test fn test_wrong() { assert(double(2) is 5) }
"""


def test_the_page_can_load_and_send_nothing_elsewhere(server: Running) -> None:
    with server.http(headers={}) as client:
        response = client.get("/")

    assert response.status_code == 200
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "http" not in response.text.replace("https://", "http").split("<script>")[1]


def test_the_page_names_its_model(server: Running) -> None:
    described = replace(server.served, base="tiny<1>", figures="11/13 (84.6 %) of its programs parse")
    app = FastAPI()
    _add_playground(app, described, ServerLimits(1, 1_000, 1.0, 1))
    with server.http(headers={}) as client:
        plain = client.get("/").text
    page = TestClient(app).get("/").text

    assert re.search(rf'<p id="model">{server.served.name}, of \d{{4}}-\d\d-\d\d, without an evaluation\.</p>', plain)
    assert "on tiny&lt;1&gt;, of 20" in page
    assert '<span id="prompts-label">Examples: </span>' in page
    assert "without an evaluation" not in page
    assert "11/13 (84.6 %) of its programs parse.</p>" in page


def test_a_program_is_checked_and_its_tests_are_run(server: Running) -> None:
    sources = (_PROGRAM, "fn f() to int { return missing }", "fn f(")
    good, unknown, bad = (server.post("/check", source=source).json() for source in sources)

    assert good["ok"]
    assert [(test["name"], test["outcome"]) for test in good["tests"]] == [
        ("test_double", "passed"),
        ("test_wrong", "failed"),
    ]
    assert [one["severity"] for one in unknown["semantic"]] == ["error"]
    assert not bad["ok"]
    assert bad["diagnostics"][0]["line"] == 1
    assert (bad["semantic"], bad["tests"]) == ([], [])


def test_reports_texts_that_a_program_makes(server: Running) -> None:
    half = r'json.parse("\"\\ud800\"")'
    bodies = (f"assert({half} is 1)", f"print({half})\n assert(false)", f"panic({half})", "assert(1.0 / 0.0 is 2.0)")
    source = "".join(f"@test fn t{number}() {{ {body} }}\n" for number, body in enumerate(bodies))
    reply = server.post("/check", source=source)
    with server.http() as client:
        assert client.post("/check", content=rb'{"source": "@test fn \ud800"}').status_code == 200

    assert reply.status_code == 200
    assert [test["outcome"] for test in reply.json()["tests"]] == ["failed", "failed", "error", "failed"]


def test_a_check_is_bounded(server: Running) -> None:
    with server.http(headers={}) as client:
        assert client.post("/check", json={"source": ""}).status_code == 401
    assert server.post("/check", source="a" * 30_000).status_code == 413
    assert server.post("/check", text="").status_code == 400


@pytest.fixture(scope="module")
def page(server: Running) -> Iterator[Page]:
    """The page in a browser, with the token filled in."""
    with firefox(is_dark=True) as page:
        _enter(page, server)
        yield page


def _enter(page: Page, server: Running) -> None:
    page.open(server.url)
    page.run(f"document.getElementById('token').value = {json.dumps(TOKEN)}")


def _read(page: Page, name: str) -> str:
    return str(page.run(f"document.getElementById('{name}').textContent"))


def _click(page: Page, text: str) -> None:
    page.run(f"[...document.querySelectorAll('button')].find(one => one.textContent === {json.dumps(text)}).click()")


@pytest.mark.e2e
@_NEEDS_FIREFOX
def test_a_person_is_asked_for_the_token(server: Running, page: Page) -> None:
    page.open(server.url)
    assert page.run("document.getElementById('needs-token').hidden") is True
    _click(page, "double")
    page.wait_for("!document.getElementById('needs-token').hidden")
    page.wait_for("document.getElementById('verdict').className === 'bad'")
    _enter(page, server)


@pytest.mark.e2e
@_NEEDS_FIREFOX
def test_a_person_sends_a_prompt_in_a_browser(page: Page) -> None:
    assert page.run("document.getElementById('prompt').value") == ""
    assert page.run("document.querySelectorAll('#prompts button').length") == 5
    assert page.run("document.getElementById('prompts').textContent").startswith("Examples: ")
    page.run(
        "new MutationObserver(() => (window.seen ??= []).push(document.getElementById('verdict').textContent))"
        ".observe(document.getElementById('verdict'), {childList: true})"
    )
    _click(page, "double")
    page.wait_for("document.getElementById('verdict').textContent.includes('decoding')")

    assert "fn double" in page.run("document.getElementById('prompt').value")
    assert _read(page, "program")
    assert re.fullmatch(
        r"(parses|does not parse: \d+ errors?)(, .*)?; (free|constrained) decoding, [\d.]+ s", _read(page, "verdict")
    )
    assert any(re.fullmatch(r"writing, [\d.]+ s", text) for text in page.run("window.seen"))


@pytest.mark.e2e
@_NEEDS_FIREFOX
def test_a_person_returns_to_an_earlier_program(page: Page) -> None:
    page.run("void (by('prompt').value = 'Write `fn half(n: int) to int`. For example, `half(8)` is 4.')")
    page.run("void (show('fn half(n: int) to int { return n / 2 }'), remember('parses, tests 1/1', true), show('fn'))")
    _click(page, "half: parses, tests 1/1")
    page.wait_for("document.getElementById('verdict').textContent === 'parses, tests 1/1'")
    page.run("void (document.getElementById('verdict').textContent = '')")
    _click(page, "Run tests")
    page.wait_for("document.getElementById('verdict').textContent === 'parses, tests 1/1'")
    _click(page, "Edit it")

    assert "fn half" in _read(page, "program")
    assert page.run("document.getElementById('source').value") == "fn half(n: int) to int { return n / 2 }"
    assert page.run("document.getElementById('edit').hidden") is False
    page.run("void (document.getElementById('source').value = '', choose('ask'))")


@pytest.mark.e2e
@_NEEDS_FIREFOX
def test_a_failed_example_offers_the_best_of_four(page: Page) -> None:
    prompt = "'Write `fn half(n: int) to int`. For example, `half(8)` is 4.'"
    page.run(f"void (by('prompt').value = {prompt}, show('fn half(n: int) to int {{ return n / 2 }}'))")
    page.run("judge()")
    assert page.run("by('better').hidden") is True
    page.run("void show('fn half(n: int) to int { return n }')")
    page.run("judge()")
    assert page.run("by('better').hidden") is False
    page.run("void (window.asked = [], window.write = (signal, options) => { asked.push(options); return 'free'; })")
    _click(page, "Best of four")
    page.wait_for("document.getElementById('verdict').textContent.includes('decoding')")
    assert page.run("asked") == [{"best_of": 4}]


@pytest.mark.e2e
@_NEEDS_FIREFOX
@pytest.mark.parametrize(
    ("source", "examples", "expected"),
    [
        (_PROGRAM, [["double(3)", "6"]], ["parses, tests 2/3", False]),
        ("fn f() to int { return 2 }", [["f()", "2"]], ["parses, tests 1/1", True]),
        ("fn f() to int { return missing }", [], ["parses, 1 type error", False]),
        ("fn f(", [["f()", "2"]], ["does not parse: 1 error", False]),
    ],
)
def test_the_page_summarizes_problems(page: Page, source: str, examples: list[list[str]], expected: list[Any]) -> None:
    assert page.run(f"check({json.dumps(source)}, 'findings', {json.dumps(examples)})")[:2] == expected


@pytest.mark.e2e
@_NEEDS_FIREFOX
@pytest.mark.parametrize(("source", "expected"), [("11", "is 11"), ('"a, right is b"', 'is "a, right is b"')])
def test_a_failed_example_shows_its_value(page: Page, source: str, expected: str) -> None:
    page.run(f"check({json.dumps(f'fn f() {{ return {source} }}')}, 'findings', [['f()', '10']])")

    assert _read(page, "findings") == f"f() is 10: failed, {expected}"


_TYPED = "fn total(items: list[int]) to int {\n    let mut sum = 0\n    for item in items { sum = sum + item"


@pytest.mark.e2e
@_NEEDS_FIREFOX
@pytest.mark.parametrize(
    ("before", "after", "listed"),
    [
        ("", "", ""),
        ("// \U0001f4a1\nfn g( { }\n", "", "2:7 expected-name"),
        ("", "\n\nfn g() { let = 2 }", "expected-"),
    ],
    ids=["alone", "below an error", "above an error"],
)
def test_the_editor_lists_errors_outside_the_typed_text(page: Page, before: str, after: str, listed: str) -> None:
    typed = [before + _TYPED[: match.end()] for match in re.finditer(r"\w+\W?", _TYPED)]
    texts = [[text + after, len(text.encode("utf-16-le")) // 2] for text in typed[::4]]
    step = "source.value = text; source.setSelectionRange(at, at); await look(undefined, isUnfinished)"
    collect = "found.push([by('problems').textContent, by('state').className])"
    loop = f"for (const [text, at] of {json.dumps(texts)}) {{ {step}; {collect}; }}"
    found = page.run(f"(async () => {{ const found = []; {loop} return found; }})()")
    page.run("look()")

    assert [one for one in found if (listed in one[0], one[1]) != (True, "bad" if listed else "")] == []
    assert listed or {text for text, _ in found} == {""}
    assert "unclosed-delimiter" in _read(page, "problems") or listed
    assert _read(page, "state").startswith("does not parse")
    page.run("void (source.value = '', choose('ask'))")


@pytest.mark.e2e
@_NEEDS_FIREFOX
def test_examples_are_read_from_a_prompt(page: Page) -> None:
    prompt = (
        'Write `fn f(n: int) to str`. For example, `f([1, 2])` is [2, 1], `g("a.b")` is "a. b" and `f(-1)` is -1.5.'
    )

    assert page.run(f"examplesIn({json.dumps(prompt)})") == [
        ["f([1, 2])", "[2, 1]"],
        ['g("a.b")', '"a. b"'],
        ["f(-1)", "-1.5"],
    ]


@pytest.mark.e2e
@_NEEDS_FIREFOX
def test_a_person_completes_a_line_in_a_browser(page: Page) -> None:
    page.run(
        "void (window.sent = [], window.posted = fetch, window.fetch = (path, options) => path === 'infill'"
        " ? (sent.push(JSON.parse(options.body)), Promise.resolve(Response.json({content: '= sum + price'})))"
        " : posted(path, options))"
    )
    _click(page, "Edit")
    page.wait_for("document.querySelector('#mirror i')")
    offered = page.run("[document.querySelector('#mirror i').textContent, document.getElementById('source').value]")
    page.press(_TAB)
    accepted = page.run("document.getElementById('source').value")
    page.press(" + missing")
    page.wait_for("document.querySelector('#mirror u') && document.querySelector('#mirror i')")
    page.press(_ESCAPE)

    assert offered[0] == "= sum + price"
    assert "sum = sum + price\n" in accepted
    assert accepted == offered[1].replace("sum \n", "sum = sum + price\n")
    assert page.run("sent[0].input_prefix + '|' + sent[0].input_suffix") == offered[1].replace("sum \n", "sum |\n")
    assert page.run("document.querySelector('#mirror u').textContent") == "missing"
    assert page.run("document.querySelectorAll('#mirror i').length") == 0
    assert _read(page, "state") == "parses, 1 type error"
    assert page.run("matchMedia('(prefers-color-scheme: dark)').matches") is True
