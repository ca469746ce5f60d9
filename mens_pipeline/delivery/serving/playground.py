"""A page on which a person asks the model, and sees what the front end and the tests say of its program."""

import asyncio
from html import escape
from pathlib import Path
from typing import Any, Final

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.language import Mode, analyze, verdict_record
from mens_pipeline.language.interpreter import Sandbox, report_record
from mens_pipeline.language.semantics import semantic_diagnostics, semantic_records

PATH: Final = "/"
CHECK: Final = "/check"

_MOST_CHARACTERS: Final = 100_000
_PAGE: Final = (Path(__file__).parent / "playground.html").read_text(encoding="utf-8")
_HEADING: Final = "<h1>Ask the Vox model</h1>\n"
# What a model wrote is only ever set as text; should that fail, nothing else can be loaded or sent elsewhere.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class CheckRequest(BaseModel):
    """A program to check."""

    model_config = ConfigDict(extra="forbid")

    source: str = Field(max_length=_MOST_CHARACTERS, description="The program.")


class Playground:
    """The page, and the checker behind it; programs run one after another.

    Of a model that is served although it was not promoted, the page says what its gate said.
    """

    def __init__(self, candidate: str | None) -> None:
        self._turn = asyncio.Lock()
        notice = "" if candidate is None else f'<p class="bad" role="note">A candidate: {escape(candidate)}.</p>\n'
        self._page = _PAGE.replace(_HEADING, _HEADING + notice)

    def page(self) -> HTMLResponse:
        """Return the page."""
        return HTMLResponse(self._page, headers={"Content-Security-Policy": _POLICY})

    async def check(self, source: str) -> dict[str, Any]:
        """Check a program and run its tests in a sandbox.

        Returns:
            What `mens check --jsonl` reports of it, with `semantic`, and `tests` as `mens test --json` has them.
        """
        async with self._turn:
            return await run_in_threadpool(_checked, source)


def _checked(source: str) -> dict[str, Any]:
    analysis = analyze(source)
    found = semantic_diagnostics(analysis.module, source) if analysis.module is not None and analysis.ok else ()
    with Sandbox(1) as sandbox:
        report = report_record(sandbox.run(source, mode=Mode.SOURCE))
    record = {**verdict_record(analysis), "semantic": semantic_records(found)}
    return {**record, "status": report["status"], "tests": report["tests"]}
