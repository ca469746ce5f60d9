"""The web application: which path leads where."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mens_pipeline.delivery.serving import completion_shape, openai_shape, playground
from mens_pipeline.delivery.serving.answering import Answering, Asked
from mens_pipeline.delivery.serving.asking import Asker, Defaults
from mens_pipeline.delivery.serving.body import read_body
from mens_pipeline.delivery.serving.completion_shape import CompletionAnswer, CompletionRequest
from mens_pipeline.delivery.serving.engine import Engine, Limits, State
from mens_pipeline.delivery.serving.guard import Access, Guard
from mens_pipeline.delivery.serving.metrics import PATH as METRICS
from mens_pipeline.delivery.serving.metrics import Metrics
from mens_pipeline.delivery.serving.ollama_shape import (
    GenerateRequest,
    OllamaAnswer,
    OllamaChatRequest,
    ShowRequest,
    shown,
    tag,
)
from mens_pipeline.delivery.serving.openai_shape import ChatAnswer, ChatRequest, model_card
from mens_pipeline.delivery.serving.playground import CheckRequest, Playground
from mens_pipeline.delivery.serving.refusal import RequestRefusedError
from mens_pipeline.delivery.serving.served_model import ServedModel
from mens_pipeline.evaluation.selection import Selector
from mens_pipeline.training.chat import Tokenizer

_LONGEST: Final = 100
_NOT_ANSWERED: Final = 499


class AccessLog:
    """Says what was asked for, in front of an application."""

    def __init__(self, app: ASGIApp, say: Callable[[str], None], metrics: Metrics) -> None:
        self._app = app
        self._say = say
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and say how it went."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, is_over = time.monotonic(), _NOT_ANSWERED, False

        async def noting(message: Message) -> None:
            nonlocal status, is_over
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                is_over = not message.get("more_body", False)

        try:
            await self._app(scope, receive, noting)
        finally:
            # A path is whatever a client likes; as ASCII it stays on its line.
            path = ascii(scope["path"])[1:-1][:_LONGEST]
            end = "" if is_over else ", not to its end"
            seconds = time.monotonic() - begun
            self._say(f"{scope['method']} {path} {status} in {seconds:.2f} s{end}")
            self._metrics.note(scope["path"], status, seconds)


class CandidateNotice:
    """Says on every answer that what is served was not promoted, in front of an application."""

    def __init__(self, app: ASGIApp, verdict: str) -> None:
        self._app = app
        self._header = (CANDIDATE.lower().encode(), verdict.encode("ascii"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the header to its answer."""

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), self._header]}
            await send(message)

        await self._app(scope, receive, noting)


CANDIDATE: Final = "X-Mens-Candidate"
"""The header that says what the gate said of a model that is served although it was not promoted."""

_WARNING: Final = "X-Mens-Warning"
_PATHS: Final = frozenset(
    {
        *("/health", "/ready", METRICS, playground.PATH, playground.CHECK),
        *(openai_shape.PATH, completion_shape.PATH, "/v1/models"),
        *("/api/generate", "/api/chat", "/api/tags", "/api/show", "/api/version"),
    }
)
"""Paths with a metric series of their own."""
_Begin = Callable[[Asked], Answering]

_LAST_SECONDS: Final = 5.0
_NOT_BUFFERED: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def application(  # noqa: PLR0913, PLR0917 - all that a server is made of
    served: ServedModel,
    tokenizer: Tokenizer,
    engine: Engine,
    limits: Limits,
    access: Access,
    defaults: Defaults,
    say: Callable[[str], None],
) -> FastAPI:
    """Build the application of a server; it starts the engine, and waits for its end."""
    selector = Selector()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        with selector:
            engine.start()
            yield
            engine.stop(0)
            engine.join(_LAST_SECONDS)

    app = FastAPI(openapi_url=None, lifespan=lifespan, strict_content_type=False)
    app.add_middleware(Guard, access=access)
    metrics = Metrics(engine, _PATHS)
    app.add_middleware(AccessLog, say=say, metrics=metrics)
    if served.candidate is not None:
        app.add_middleware(CandidateNotice, verdict=served.candidate)
    app.add_exception_handler(RequestRefusedError, _refused)
    app.add_exception_handler(HTTPException, _not_found)
    asker = Asker(served, tokenizer, limits, defaults)

    def answering(asked: Asked) -> Answering:
        return Answering(engine, limits, asked, selector)

    _add_state(app, engine, served, metrics)
    _add_playground(app, served, limits)
    _add_openai(app, served, asker, limits, answering)
    _add_ollama(app, served, asker, limits, answering)
    return app


class _Stream(StreamingResponse):
    """A response that gives its answers up however it ends, even before its first byte."""

    def __init__(self, content: AsyncIterator[bytes], answering: Answering, asked: Asked, media_type: str) -> None:
        super().__init__(content, headers={**_NOT_BUFFERED, **_warned(asked)}, media_type=media_type)
        self._answering = answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answering.leave()


def _add_state(app: FastAPI, engine: Engine, served: ServedModel, metrics: Metrics) -> None:
    about = {} if served.candidate is None else {"candidate": served.candidate}

    @app.get("/health")
    async def health() -> JSONResponse:
        is_alive = engine.state is not State.ENDED
        return JSONResponse({"status": "ok" if is_alive else "failed", **about}, 200 if is_alive else 503)

    @app.get("/ready")
    async def ready() -> JSONResponse:
        return JSONResponse({"status": engine.state, **about}, 200 if engine.state is State.READY else 503)

    @app.get(METRICS)
    async def figures() -> Response:
        return metrics.response()


def _add_playground(app: FastAPI, served: ServedModel, limits: Limits) -> None:
    own = Playground(served.candidate)

    @app.get(playground.PATH)
    async def page() -> Response:
        return own.page()

    @app.post(playground.CHECK)
    async def check(request: Request) -> dict[str, Any]:
        return await own.check((await read_body(request, CheckRequest, limits.max_request_bytes)).source)


def _add_openai(app: FastAPI, served: ServedModel, asker: Asker, limits: Limits, begin: _Begin) -> None:
    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [model_card(served, name) for name in served.names]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        asker.check_name(name)
        return model_card(served, name)

    @app.post(openai_shape.PATH)
    async def chat(request: Request) -> Response:
        body = await read_body(request, ChatRequest, limits.max_request_bytes)
        asked = await asker.asked(body.wish)
        answer, answering = ChatAnswer(served, asked), begin(asked)
        if body.stream:
            return _Stream(answer.stream(answering, has_usage=body.has_usage), answering, asked, "text/event-stream")
        return JSONResponse(answer.whole(await answering.complete(request)), headers=_warned(asked))

    @app.post(completion_shape.PATH)
    async def complete(request: Request) -> Response:
        body = await read_body(request, CompletionRequest, limits.max_request_bytes)
        asked = await asker.asked(body.wish)
        answer, answering = CompletionAnswer(served, asked), begin(asked)
        if body.stream:
            stream = answer.stream(answering, has_usage=body.has_usage)
            return _Stream(stream, answering, asked, "text/event-stream")
        return JSONResponse(answer.whole(await answering.complete(request)), headers=_warned(asked))


def _add_ollama(app: FastAPI, served: ServedModel, asker: Asker, limits: Limits, begin: _Begin) -> None:
    num_bytes = sum(file.stat().st_size for file in served.judged.base_path.glob("*.safetensors"))

    async def answered(request: Request, body: GenerateRequest | OllamaChatRequest) -> Response:
        asked = await asker.asked(body.wish)
        answer = OllamaAnswer(served, asked, is_chat=isinstance(body, OllamaChatRequest))
        answering = begin(asked)
        if body.is_streamed:
            return _Stream(answer.stream(answering), answering, asked, "application/x-ndjson")
        (outcome,) = await answering.complete(request)
        return JSONResponse(answer.whole(outcome), headers=_warned(asked))

    @app.post("/api/generate")
    async def generate(request: Request) -> Response:
        return await answered(request, await read_body(request, GenerateRequest, limits.max_request_bytes))

    @app.post("/api/chat")
    async def chat(request: Request) -> Response:
        return await answered(request, await read_body(request, OllamaChatRequest, limits.max_request_bytes))

    @app.get("/api/tags")
    async def tags() -> dict[str, Any]:
        return {"models": [tag(served, name, num_bytes) for name in served.names]}

    @app.post("/api/show")
    async def show(request: Request) -> dict[str, Any]:
        asker.check_name((await read_body(request, ShowRequest, limits.max_request_bytes)).model)
        return shown(served, num_bytes)

    @app.get("/api/version")
    async def own_version() -> dict[str, str]:
        return {"version": version("mens-pipeline")}

    @app.post("/api/embeddings")
    @app.post("/api/embed")
    async def embeddings() -> None:
        raise RequestRefusedError(501, "This server writes programs. Ask another one for embeddings.")


def _warned(asked: Asked) -> dict[str, str]:
    """Return the header that says what was not done as asked for; only our figures and names stand in it."""
    return {_WARNING: "; ".join(asked.warnings)} if asked.warnings else {}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefusedError), "registered for nothing else"  # noqa: S101 - our own impossibility
    return error.response(request.url.path)


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for nothing else"  # noqa: S101 - our own impossibility
    message = f"{request.method} {request.url.path[:100]}: {error.detail}. See `mens serve --help` for what there is."
    return RequestRefusedError(error.status_code, message, headers=error.headers).response(request.url.path)
