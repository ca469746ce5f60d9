"""The web application: its routes, and a page to try the model."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from mens_pipeline.corpus.telemetry.accepted import AcceptedPieces
from mens_pipeline.evaluation.best_of import Selector
from mens_pipeline.language import Mode, analyze, verdict_record
from mens_pipeline.language.interpreter import Sandbox, report_record
from mens_pipeline.language.semantics import semantic_diagnostics, semantic_records
from mens_pipeline.models.chat import Tokenizer
from mens_pipeline.serving import infill, ollama, openai
from mens_pipeline.serving.access import Access, AccessControl
from mens_pipeline.serving.completions import Completions, Defaults, RequestPreparer
from mens_pipeline.serving.feedback import FEEDBACK, WHY_WITHHELD, CursorUse, FeedbackRequest
from mens_pipeline.serving.generation import GenerationResult, PreparedRequest
from mens_pipeline.serving.http import RequestRefusedError, client_went_away, read_body
from mens_pipeline.serving.metrics import METRICS, AccessLog, Metrics
from mens_pipeline.serving.queue import GenerationQueue, ServerLimits, State
from mens_pipeline.serving.served_model import ServedModel

PAGE: Final = "/"
CHECK: Final = "/check"

_MOST_CHARACTERS: Final = 100_000
_HTML: Final = (Path(__file__).parent / "playground.html").read_text(encoding="utf-8")
_HEADING: Final = "<h1>Ask the Vox model</h1>\n"
# The page inserts a completion as text only; if that fails, the policy still blocks loading and sending.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_OpenAi = openai.ChatRequest | openai.CompletionRequest
_Ollama = ollama.GenerateRequest | ollama.OllamaChatRequest
_Cursor = infill.FimRequest | infill.InfillRequest
_BODIES: Final[Mapping[str, type[_OpenAi | _Ollama | _Cursor]]] = {
    openai.CHATS: openai.ChatRequest,
    openai.COMPLETIONS: openai.CompletionRequest,
    infill.FIM: infill.FimRequest,
    infill.INFILL: infill.InfillRequest,
    infill.COMPLETION: infill.InfillRequest,
    "/api/generate": ollama.GenerateRequest,
    "/api/chat": ollama.OllamaChatRequest,
}
"""Path -> body of a request for completions."""
_PATHS: Final = frozenset(
    {
        *("/health", "/ready", METRICS, PAGE, CHECK, FEEDBACK, "/v1/models", *_BODIES),
        *(*infill.PROPERTIES, infill.TABBY_HEALTH, "/api/tags", "/api/ps", "/api/show", "/api/version"),
    }
)
"""Paths with a metric series of their own."""
_WARNING: Final = "X-Mens-Warning"
_STRICT: Final = "X-Mens-Strict"
"""With `1`, a request with fields that have no effect is refused, so that an evaluation notices them."""
_LAST_SECONDS: Final = 5.0
_NOT_BUFFERED: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def application(  # noqa: PLR0913, PLR0917 - all parts of a server
    served: ServedModel,
    tokenizer: Tokenizer,
    queue: GenerationQueue,
    limits: ServerLimits,
    access: Access,
    defaults: Defaults,
    log_line: Callable[[str], None],
    accepted: AcceptedPieces | None,
) -> FastAPI:
    """Build the web application of a server; it starts the queue, and stops it on shutdown."""
    selector = Selector()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        with selector:
            queue.start()
            yield
            queue.stop(0)
            queue.join(_LAST_SECONDS)

    app = FastAPI(openapi_url=None, lifespan=lifespan, strict_content_type=False)
    app.add_middleware(AccessControl, access=access)
    metrics = Metrics(queue, _PATHS)
    use = CursorUse(metrics.registry, accepted, log_line)
    app.add_middleware(AccessLog, log_line=log_line, metrics=metrics, candidate=served.candidate)
    app.add_exception_handler(RequestRefusedError, _respond_refusal)
    app.add_exception_handler(HTTPException, _respond_not_found)
    preparer = RequestPreparer(served, tokenizer, limits, defaults)

    async def respond(request: Request) -> Response:
        body = await read_body(request, _BODIES[request.url.path], limits.max_request_bytes)
        asked = body.generation
        if asked.ignored and request.headers.get(_STRICT) == "1":
            message = f"{', '.join(asked.ignored)}: no effect here, which {_STRICT} does not allow. Leave it out."
            raise RequestRefusedError(400, message, param=asked.ignored[0], code="unsupported_parameter")
        prepared = await preparer.prepare(asked)
        response = body.to_response(served, prepared)
        if prepared.asked.num_completions == 0:
            return JSONResponse(response.format_whole(()), headers=_format_warnings(prepared))
        completions = Completions(queue, prepared, selector, use.note)
        if body.is_streamed:
            stream = response.format_stream(completions)
            return _Stream(stream, completions, _format_warnings(prepared), response.media_type)
        results = await completions.collect(request)
        return JSONResponse(response.format_whole(results), headers=_format_warnings(prepared, results))

    for path in _BODIES:
        app.post(path)(respond)

    @app.post(FEEDBACK)
    async def feedback(request: Request) -> dict[str, Any]:
        return await use.accept(await read_body(request, FeedbackRequest, limits.max_request_bytes))

    _add_state(app, queue, served, metrics)
    _add_playground(app, served, limits)
    _add_descriptions(app, served, preparer, limits)
    return app


class _Stream(StreamingResponse):
    """A streamed response that cancels its completions however it ends, even before its first byte."""

    def __init__(
        self, content: AsyncIterator[bytes], completions: Completions, headers: Mapping[str, str], media_type: str
    ) -> None:
        super().__init__(content, headers={**_NOT_BUFFERED, **headers}, media_type=media_type)
        self._completions = completions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._completions.cancel()


def _add_state(app: FastAPI, queue: GenerationQueue, served: ServedModel, metrics: Metrics) -> None:
    about = {} if served.candidate is None else {"candidate": served.candidate}

    @app.get("/health")
    async def health() -> JSONResponse:
        is_alive = queue.state is not State.ENDED
        return JSONResponse({"status": "ok" if is_alive else "failed", **about}, 200 if is_alive else 503)

    @app.get("/ready")
    async def ready() -> JSONResponse:
        return JSONResponse({"status": queue.state, **about}, 200 if queue.state is State.READY else 503)

    @app.get(METRICS)
    async def figures() -> Response:
        return metrics.response()


class CheckRequest(BaseModel):
    """A program to check."""

    model_config = ConfigDict(extra="forbid")

    source: str = Field(max_length=_MOST_CHARACTERS, description="The program.")


class CheckQueue:
    """Checks programs one at a time, in the order of their requests; as many may wait as completions."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._turn = asyncio.Lock()
        self._num_open = 0

    async def check(self, request: Request, source: str) -> dict[str, Any]:
        """Return the report on a program.

        `RequestRefusedError` if too many wait, its turn did not come in time, or the client disconnected before it.
        """
        if self._num_open > self._limits.max_waiting:
            message = "Too many programs are waiting for a check. Retry in 2 seconds."
            raise RequestRefusedError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "2"})
        self._num_open += 1
        try:
            async with asyncio.timeout(self._limits.timeout) as wait, self._turn:
                wait.reschedule(None)
                if await request.is_disconnected():
                    raise client_went_away()
                return await run_in_threadpool(_check, source)
        except TimeoutError as error:
            message = f"The check did not start within {self._limits.timeout:g} seconds. Retry later."
            raise RequestRefusedError(504, message, code="timeout") from error
        finally:
            self._num_open -= 1


def _add_playground(app: FastAPI, served: ServedModel, limits: ServerLimits) -> None:
    checks = CheckQueue(limits)
    day = datetime.fromtimestamp(served.created_unix, UTC).date()
    base = f"on {served.base}" * bool(served.base)
    about = [served.name, base, f"of {day}", served.figures or "without an evaluation"]
    notice = f'<p id="model">{escape(", ".join(filter(None, about)))}.</p>\n'
    notice += f'<p class="bad" role="note">A candidate: {escape(served.candidate)}.</p>\n' if served.candidate else ""
    html = _HTML.replace(_HEADING, _HEADING + notice)

    @app.head(PAGE)  # how clients of Ollama check for a server
    @app.get(PAGE)
    async def page() -> Response:
        return HTMLResponse(html, headers={"Content-Security-Policy": _POLICY})

    @app.post(CHECK)
    async def check(request: Request) -> dict[str, Any]:
        return await checks.check(request, (await read_body(request, CheckRequest, limits.max_request_bytes)).source)


def _check(source: str) -> dict[str, Any]:
    analysis = analyze(source)
    found = semantic_diagnostics(analysis.module, source) if analysis.module is not None and analysis.ok else ()
    with Sandbox(1) as sandbox:
        report = report_record(sandbox.run(source, mode=Mode.SOURCE))
    record = {**verdict_record(analysis), "semantic": semantic_records(found)}
    return {**record, "status": report["status"], "tests": report["tests"]}


def _add_descriptions(app: FastAPI, served: ServedModel, preparer: RequestPreparer, limits: ServerLimits) -> None:
    num_bytes = sum(file.stat().st_size for file in served.evaluated.base_path.glob("*.safetensors"))

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [openai.model_card(served, name) for name in served.names]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        preparer.check_name(name)
        return openai.model_card(served, name)

    @app.get(infill.PROPERTIES[0])
    @app.get(infill.PROPERTIES[1])
    async def properties() -> dict[str, Any]:
        return infill.describe_server(served, limits.max_concurrent)

    @app.get(infill.TABBY_HEALTH)
    async def health_of_tabby() -> dict[str, Any]:
        return infill.describe_health(served)

    @app.get("/api/tags")
    async def tags() -> dict[str, Any]:
        return {"models": [ollama.format_tag(served, name, num_bytes) for name in served.names]}

    @app.get("/api/ps")
    async def running_models() -> dict[str, Any]:
        never = {"expires_at": "9999-12-31T23:59:59Z", "size_vram": 0}
        return {"models": [{**ollama.format_tag(served, name, num_bytes), **never} for name in served.names]}

    @app.post("/api/show")
    async def show(request: Request) -> dict[str, Any]:
        preparer.check_name((await read_body(request, ollama.ShowRequest, limits.max_request_bytes)).model)
        return ollama.describe_model(served, num_bytes)

    @app.get("/api/version")
    async def own_version() -> dict[str, str]:
        return {"version": version("mens-pipeline")}

    @app.post("/api/embeddings")
    @app.post("/api/embed")
    async def embeddings() -> None:
        raise RequestRefusedError(501, "This server does not support embeddings. Use another server for them.")


def _format_warnings(request: PreparedRequest, results: Sequence[GenerationResult] = ()) -> dict[str, str]:
    """Format the header that lists deviations from the request; it contains only our own figures and field names."""
    reasons = dict.fromkeys(result.withheld for result in results if result.withheld is not None)
    sentences = (*request.warnings, *(f"withheld: {WHY_WITHHELD[reason]}" for reason in reasons))
    return {_WARNING: "; ".join(sentences)} if sentences else {}


async def _respond_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefusedError), "registered for nothing else"  # noqa: S101 - an internal invariant
    return error.response(request.url.path)


async def _respond_not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for nothing else"  # noqa: S101 - an internal invariant
    message = f"{request.method} {request.url.path[:100]}: {error.detail}. See `mens serve --help` for all paths."
    return RequestRefusedError(error.status_code, message, headers=error.headers).response(request.url.path)
