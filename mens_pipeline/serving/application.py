"""The web application: routes, and the page on which a person tries the model."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
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
from mens_pipeline.serving.completions import Completions, Defaults, RequestPreparer
from mens_pipeline.serving.feedback import FEEDBACK, CursorUse, FeedbackRequest
from mens_pipeline.serving.generation import GenerationRequest, GenerationResult, Withheld
from mens_pipeline.serving.http import RequestRefusedError, read_body
from mens_pipeline.serving.infill import (
    COMPLETION,
    FIM,
    INFILL,
    PROPERTIES,
    TABBY_HEALTH,
    FimRequest,
    FimResponse,
    InfillRequest,
    InfillResponse,
    describe_health,
    describe_server,
)
from mens_pipeline.serving.limits import METRICS, Access, AccessControl, AccessLog, Metrics
from mens_pipeline.serving.ollama import (
    GenerateRequest,
    OllamaChatRequest,
    OllamaResponse,
    ShowRequest,
    describe_model,
    tag,
)
from mens_pipeline.serving.openai import (
    CHATS,
    COMPLETIONS,
    ChatRequest,
    ChatResponse,
    CompletionRequest,
    CompletionResponse,
    model_card,
)
from mens_pipeline.serving.queue import GenerationQueue, Limits, State
from mens_pipeline.serving.served_model import ServedModel

PAGE: Final = "/"
CHECK: Final = "/check"

_MOST_CHARACTERS: Final = 100_000
_HTML: Final = (Path(__file__).parent / "playground.html").read_text(encoding="utf-8")
_HEADING: Final = "<h1>Ask the Vox model</h1>\n"
# What a model wrote is only ever set as text; should that fail, nothing else can be loaded or sent elsewhere.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_WARNING: Final = "X-Mens-Warning"
_PATHS: Final = frozenset(
    {
        *("/health", "/ready", METRICS, PAGE, CHECK),
        *(CHATS, COMPLETIONS, FIM, INFILL, COMPLETION, FEEDBACK, *PROPERTIES, TABBY_HEALTH, "/v1/models"),
        *("/api/generate", "/api/chat", "/api/tags", "/api/show", "/api/version"),
    }
)
"""Paths with a metric series of their own."""
_Begin = Callable[[GenerationRequest], Completions]

_LAST_SECONDS: Final = 5.0
_NOT_BUFFERED: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def application(  # noqa: PLR0913, PLR0917 - all that a server is made of
    served: ServedModel,
    tokenizer: Tokenizer,
    queue: GenerationQueue,
    limits: Limits,
    access: Access,
    defaults: Defaults,
    log_line: Callable[[str], None],
    accepted: AcceptedPieces | None,
) -> FastAPI:
    """Build the application of a server; it starts the queue, and waits for its end."""
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

    def begin(request: GenerationRequest) -> Completions:
        return Completions(queue, request, selector, use.note)

    _add_state(app, queue, served, metrics)
    _add_playground(app, served, limits)
    _add_openai(app, served, preparer, limits, begin)
    _add_ollama(app, served, preparer, limits, begin)
    _add_infill(app, served, preparer, limits, begin)

    @app.post(FEEDBACK)
    async def feedback(request: Request) -> dict[str, Any]:
        return await use.accept(await read_body(request, FeedbackRequest, limits.max_request_bytes))

    return app


class _Stream(StreamingResponse):
    """A streamed response that cancels its completions however it ends, even before its first byte."""

    def __init__(
        self, content: AsyncIterator[bytes], completions: Completions, request: GenerationRequest, media_type: str
    ) -> None:
        super().__init__(content, headers={**_NOT_BUFFERED, **_warning_headers(request)}, media_type=media_type)
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


def _add_playground(app: FastAPI, served: ServedModel, limits: Limits) -> None:
    """Add the page on which a person asks the model, and the checker behind it; programs run one after another.

    Of a model that is served although it was not promoted, the page says what its gate said.
    """
    one_by_one = asyncio.Lock()
    said = served.candidate
    notice = "" if said is None else f'<p class="bad" role="note">A candidate: {escape(said)}.</p>\n'
    html = _HTML.replace(_HEADING, _HEADING + notice)

    @app.get(PAGE)
    async def page() -> Response:
        return HTMLResponse(html, headers={"Content-Security-Policy": _POLICY})

    @app.post(CHECK)
    async def check(request: Request) -> dict[str, Any]:
        source = (await read_body(request, CheckRequest, limits.max_request_bytes)).source
        async with one_by_one:
            return await run_in_threadpool(_check, source)


def _check(source: str) -> dict[str, Any]:
    """Return what `mens check --jsonl` reports of a program, with `semantic`, and `tests` of `mens test --json`."""
    analysis = analyze(source)
    found = semantic_diagnostics(analysis.module, source) if analysis.module is not None and analysis.ok else ()
    with Sandbox(1) as sandbox:
        report = report_record(sandbox.run(source, mode=Mode.SOURCE))
    record = {**verdict_record(analysis), "semantic": semantic_records(found)}
    return {**record, "status": report["status"], "tests": report["tests"]}


def _add_openai(app: FastAPI, served: ServedModel, preparer: RequestPreparer, limits: Limits, begin: _Begin) -> None:
    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [model_card(served, name) for name in served.names]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        preparer.check_name(name)
        return model_card(served, name)

    async def respond(
        request: Request, body: ChatRequest | CompletionRequest, kind: type[ChatResponse | CompletionResponse]
    ) -> Response:
        generation = await preparer.prepare(body.generation)
        response, completions = kind(served, generation), begin(generation)
        if body.stream:
            stream = response.format_stream(completions, has_usage=body.has_usage)
            return _Stream(stream, completions, generation, "text/event-stream")
        results = await completions.collect(request)
        document = response.format_whole(results)
        return JSONResponse(document, headers=_warning_headers(generation, results))

    @app.post(CHATS)
    async def chat(request: Request) -> Response:
        return await respond(request, await read_body(request, ChatRequest, limits.max_request_bytes), ChatResponse)

    @app.post(COMPLETIONS)
    async def complete(request: Request) -> Response:
        body = await read_body(request, CompletionRequest, limits.max_request_bytes)
        return await respond(request, body, CompletionResponse)


def _add_ollama(app: FastAPI, served: ServedModel, preparer: RequestPreparer, limits: Limits, begin: _Begin) -> None:
    num_bytes = sum(file.stat().st_size for file in served.evaluated.base_path.glob("*.safetensors"))

    async def respond(request: Request, body: GenerateRequest | OllamaChatRequest) -> Response:
        generation = await preparer.prepare(body.generation)
        response = OllamaResponse(served, generation, is_chat=isinstance(body, OllamaChatRequest))
        completions = begin(generation)
        if body.is_streamed:
            return _Stream(response.format_stream(completions), completions, generation, "application/x-ndjson")
        results = await completions.collect(request)
        return JSONResponse(response.format(results[0].text, results[0]), headers=_warning_headers(generation, results))

    @app.post("/api/generate")
    async def generate(request: Request) -> Response:
        return await respond(request, await read_body(request, GenerateRequest, limits.max_request_bytes))

    @app.post("/api/chat")
    async def chat(request: Request) -> Response:
        return await respond(request, await read_body(request, OllamaChatRequest, limits.max_request_bytes))

    @app.get("/api/tags")
    async def tags() -> dict[str, Any]:
        return {"models": [tag(served, name, num_bytes) for name in served.names]}

    @app.post("/api/show")
    async def show(request: Request) -> dict[str, Any]:
        preparer.check_name((await read_body(request, ShowRequest, limits.max_request_bytes)).model)
        return describe_model(served, num_bytes)

    @app.get("/api/version")
    async def own_version() -> dict[str, str]:
        return {"version": version("mens-pipeline")}

    @app.post("/api/embeddings")
    @app.post("/api/embed")
    async def embeddings() -> None:
        raise RequestRefusedError(501, "This server writes programs. Ask another one for embeddings.")


def _add_infill(app: FastAPI, served: ServedModel, preparer: RequestPreparer, limits: Limits, begin: _Begin) -> None:
    @app.post(FIM)
    async def complete(request: Request) -> Response:
        body = await read_body(request, FimRequest, limits.max_request_bytes)
        generation = await preparer.prepare(body.generation)
        response, completions = FimResponse(served, generation), begin(generation)
        if body.stream:
            stream = response.format_stream(completions, has_usage=False)
            return _Stream(stream, completions, generation, "text/event-stream")
        results = await completions.collect(request)
        document = response.format_whole(results)
        return JSONResponse(document, headers=_warning_headers(generation, results))

    @app.get(PROPERTIES[0])
    @app.get(PROPERTIES[1])
    async def properties() -> dict[str, Any]:
        return describe_server(served, limits.max_concurrent)

    @app.get(TABBY_HEALTH)
    async def health_of_tabby() -> dict[str, Any]:
        return describe_health(served)

    @app.post(INFILL)
    @app.post(COMPLETION)
    async def infill(request: Request) -> Response:
        body = await read_body(request, InfillRequest, limits.max_request_bytes)
        generation = await preparer.prepare(body.generation)
        response = InfillResponse(served.name, generation, body.response_fields)
        if body.n_predict == 0:
            return JSONResponse(response.format_nothing(), headers=_warning_headers(generation))
        completions = begin(generation)
        if body.stream:
            return _Stream(response.format_stream(completions), completions, generation, "text/event-stream")
        results = await completions.collect(request)
        return JSONResponse(response.format(results[0].text, results[0]), headers=_warning_headers(generation, results))


_WHY_WITHHELD: Final = {
    Withheld.DOES_NOT_STAND: "no piece was found that stands there",
    Withheld.UNSURE: "the model is too unsure of it; mens serve --show-all sends it",
}


def _warning_headers(request: GenerationRequest, results: Sequence[GenerationResult] = ()) -> dict[str, str]:
    """Return the header that says what was not done as asked for; only our figures and names stand in it."""
    reasons = dict.fromkeys(result.withheld for result in results if result.withheld is not None)
    sentences = (*request.warnings, *(f"withheld: {_WHY_WITHHELD[reason]}" for reason in reasons))
    return {_WARNING: "; ".join(sentences)} if sentences else {}


async def _respond_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefusedError), "registered for nothing else"  # noqa: S101 - our own impossibility
    return error.response(request.url.path)


async def _respond_not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for nothing else"  # noqa: S101 - our own impossibility
    message = f"{request.method} {request.url.path[:100]}: {error.detail}. See `mens serve --help` for what there is."
    return RequestRefusedError(error.status_code, message, headers=error.headers).response(request.url.path)
