"""The page at `/`: a person asks, sees the program come, and what the front end and the tests say of it."""

import shutil

import pytest

from mens_pipeline_tests.serving.running import TOKEN, Running

_CHROMIUM = shutil.which("chromium")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_PROGRAM = """fn double(n: int) to int { return n + n }
@test fn test_double() { assert(double(2) is 4) }
@test fn test_wrong() { assert(double(2) is 5) }
"""


def test_the_page_can_load_and_send_nothing_elsewhere(server: Running) -> None:
    """It comes without the token, and its policy allows this server alone."""
    with server.http(headers={}) as client:
        response = client.get("/")

    assert response.status_code == 200
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "http" not in response.text.replace("https://", "http").split("<script>")[1]


def test_a_program_is_checked_and_its_tests_are_run(server: Running) -> None:
    """The verdict, names, and each test with its outcome."""
    with server.http() as client:
        good = client.post("/check", json={"source": _PROGRAM}).json()
        unknown = client.post("/check", json={"source": "fn f() to int { return missing }"}).json()
        bad = client.post("/check", json={"source": "fn f("}).json()

    assert good["ok"]
    assert [(test["name"], test["outcome"]) for test in good["tests"]] == [
        ("test_double", "passed"),
        ("test_wrong", "failed"),
    ]
    assert [one["severity"] for one in unknown["semantic"]] == ["error"]
    assert not bad["ok"]
    assert bad["diagnostics"][0]["line"] == 1
    assert (bad["semantic"], bad["tests"]) == ([], [])


def test_a_check_is_bounded(server: Running) -> None:
    """It wants the token, and refuses more than it may read."""
    with server.http(headers={}) as client:
        assert client.post("/check", json={"source": ""}).status_code == 401
    with server.http() as client:
        assert client.post("/check", json={"source": "a" * 30_000}).status_code == 413
        assert client.post("/check", json={"text": ""}).status_code == 400


@pytest.mark.e2e
@pytest.mark.skipif(_CHROMIUM is None, reason="no chromium on this machine; on Debian: apt install chromium")
def test_a_person_asks_in_a_browser(server: Running) -> None:
    """The token is asked for when it is wanted; then the program comes, and its verdict."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only this test has a browser

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=_FLAGS)
        page = browser.new_page()
        page.goto(server.url)
        page.get_by_role("button", name="Write").click()
        page.get_by_label("Token of the server").fill(TOKEN)
        page.get_by_role("button", name="Write").click()
        page.wait_for_function("document.getElementById('verdict').textContent.includes('Vox')")
        program = page.locator("#program").text_content()
        browser.close()

    assert program
