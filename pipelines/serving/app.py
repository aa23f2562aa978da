"""The server's endpoints: OpenAI's for texts and embeddings, ranking, health and metrics."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response as HttpResponse
from starlette.responses import StreamingResponse

from heddle.contexts import RequestID
from heddle.pipelines.embedding import SentenceEmbedder
from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.ranking import PairScorer
from heddle.pipelines.serving import tokens, translation
from heddle.pipelines.serving.answer import Answer
from heddle.pipelines.serving.embeddings import EmbeddingEngine
from heddle.pipelines.serving.engine import Engine
from heddle.pipelines.serving.errors import ApiError, failure, invalid, no_request
from heddle.pipelines.serving.message import Message
from heddle.pipelines.serving.metrics import CONTENT_TYPE_LATEST, Metrics, ModelMetrics
from heddle.pipelines.serving.ranking import RankingEngine
from heddle.pipelines.serving.reading.forms import Style
from heddle.pipelines.serving.records import (
    ChatAsked,
    CompletionAsked,
    DetokenizeAsked,
    EmbeddingsAsked,
    RankingAsked,
    TextAsked,
    TokenizeAsked,
)
from heddle.pipelines.serving.responses import Response, in_json
from heddle.pipelines.serving.shapes import ChatShape, CompletionShape

ServedModel = TextGenerator | SentenceEmbedder | PairScorer
AnyEngine = Engine | EmbeddingEngine | RankingEngine
OneKind = TypeVar("OneKind", Engine, EmbeddingEngine, RankingEngine)

Handler = Callable[[Request], Coroutine[Any, Any, HttpResponse]]

UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers of a stream: proxies are to hand on each piece."""


PROMPT_END = 16
"""Tokens of a prompt that say whether it has begun the reasoning."""


@dataclass(frozen=True)
class Settings:
    """How models are asked, and their answers read.

    Attributes:
        calls: The form that models write calls of tools in, as `Style.of` takes it.
        reasoning: Whether reasoning is kept apart from texts.
        generation_config: Whether the models' files say how tokens are drawn where a request does
            not; else as OpenAI's API does, all may be.
    """

    calls: str | None = None
    reasoning: bool = True
    generation_config: bool = True


class Service:
    """What the endpoints answer with.

    Args:
        models: Text generators, sentence embedders and scorers of pairs by name.
        most: Requests of a model at once; a choice of an answer is one.
        api_keys: Any of these is wanted of who uses a model; none: everybody may.
        settings: How models are asked, and their answers read.
    """

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        most: int,
        api_keys: Sequence[str] = (),
        settings: Settings = Settings(),
    ) -> None:
        self.metrics = Metrics()
        self.created = int(time.time())
        self._keys = [key.encode() for key in api_keys]
        self.engines: dict[str, AnyEngine] = {}
        for name, model in models.items():
            if isinstance(model, TextGenerator):
                counted = ModelMetrics(self.metrics, name, model)
                templates = model.tokenizer.template + model.tokenizer.tool_template
                style = Style.of(templates, settings.calls, settings.reasoning)
                sampling = model.tokenizer.sampling() if settings.generation_config else {}
                self.engines[name] = Engine(name, model, most, counted, style, sampling)
            else:
                counted = ModelMetrics(self.metrics, name)
                self.engines[name] = (
                    RankingEngine(name, model, most, counted)
                    if isinstance(model, PairScorer)
                    else EmbeddingEngine(name, model, most, counted)
                )

    @asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncIterator[None]:
        """The threads of all engines, as long as the server runs."""
        for engine in self.engines.values():
            engine.start()
        try:
            yield
        finally:
            for engine in self.engines.values():
                await engine.close()

    def authorize(self, request: Request) -> None:
        """Lets who has a key go on.

        Raises:
            ApiError: There is no key, or another one.
        """
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        key = given.strip().encode("latin-1")  # which is how headers are read
        known = [secrets.compare_digest(key, own) for own in self._keys]
        if known and not (scheme.lower() == "bearer" and any(known)):
            message = "Authorization: wanted 'Bearer ' and a key of this server, got another value"
            raise ApiError(401, message, code="invalid_api_key")

    def engine(self, name: str) -> AnyEngine:
        """The engine of a model.

        Raises:
            ApiError: There is no such model.
        """
        if found := self.engines.get(name):
            return found
        known = ", ".join(self.engines)
        raise ApiError(
            404, f"model: wanted one of {known}, got {name!r}", "model", "model_not_found"
        )

    def engine_of(self, kind: type[OneKind], name: str) -> OneKind:
        """The engine of a model that has to be of a kind.

        Raises:
            ApiError: It is of another one, or there is no such model.
        """
        found = self.engine(name)
        if not isinstance(found, kind):
            message = f"model: wanted {kind.kind}, got {name!r}, {found.kind}"
            raise ApiError(400, message, "model")
        return found

    def lost(self) -> dict[str, str]:
        """Why models answer no more, by name."""
        return {name: str(e.lost) for name, e in self.engines.items() if e.lost}

    def record(self, name: str) -> dict[str, Any]:
        """A model, as the wire has it."""
        return {"id": name, "object": "model", "created": self.created, "owned_by": "heddle"}


class Route(APIRoute):
    """A route for who has a key, whose failures are answers.

    One of the framework's would end the connection, or read a body before it asks for the key.
    """

    def get_route_handler(self) -> Handler:
        """As the framework's; what is not foreseen is logged."""
        handle = super().get_route_handler()

        async def handle_all(request: Request) -> HttpResponse:
            try:
                request.app.state.authorize(request)  # before the body is read
                return await handle(request)
            except (HTTPException, RequestValidationError):
                raise
            except Exception as error:
                return _answer_of(failure(error))

        return handle_all


def make_app(service: Service) -> FastAPI:
    """The ASGI application of a service."""
    app = FastAPI(title="Heddle", docs_url=None, redoc_url=None, lifespan=service.running)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.state.authorize = service.authorize
    app.include_router(_state(service))
    app.include_router(_models(service))
    return app


def _state(service: Service) -> APIRouter:
    """What needs no key: how the server is."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> HttpResponse:
        lost = service.lost()
        state = {"status": "lost", "models": lost} if lost else {"status": "ok"}
        return _json(state, 503 if lost else 200)

    @router.get("/version")
    async def this_version() -> HttpResponse:
        return _json({"version": version("heddle")})

    @router.get("/metrics")
    async def metrics() -> HttpResponse:
        return HttpResponse(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


def _models(service: Service) -> APIRouter:
    """What uses the models."""
    router = APIRouter(route_class=Route)

    @router.get("/v1/models")
    async def models() -> HttpResponse:
        return _json({"object": "list", "data": [service.record(n) for n in service.engines]})

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> HttpResponse:
        return _json(service.record(service.engine(name).name))

    @router.post("/v1/completions")
    async def completions(asked: CompletionAsked, request: Request) -> HttpResponse:
        engine = service.engine_of(Engine, asked.model)
        engine.check_room(asked.choices, len(asked.prompts))
        name = f"cmpl-{RequestID()}"
        shape = CompletionShape(engine.generator.tokenizer, asked.logprobs)
        requests = translation.completion_requests(name, asked, engine.sampling)
        answer = await engine.ask(
            requests, asked.guided_regex, request.receive, whole=not asked.stream
        )
        return await _respond(answer, asked, Response.of(asked, name, shape, len(requests)))

    @router.post("/v1/chat/completions")
    async def chat(asked: ChatAsked, request: Request) -> HttpResponse:
        engine = service.engine_of(Engine, asked.model)
        engine.check_room(asked.choices)
        name = f"chatcmpl-{RequestID()}"
        template = engine.generator.tokenizer.template_for(asked.shown_tools or None)
        translation.check_effort(asked, template)
        call = translation.forced_call(asked)
        requests = translation.chat_requests(name, asked, call, engine.sampling)
        hidden = None if translation.is_constrained(asked, call) else engine.hidden
        answer = await engine.ask(
            requests, asked.guided_regex, request.receive, hidden, whole=not asked.stream
        )
        end = engine.generator.tokenizer.decode(answer.prompt[-PROMPT_END:], hidden=())
        shape = ChatShape(
            engine.generator.tokenizer,
            (asked.top_logprobs or 0) if asked.logprobs else None,
            lambda: Message(
                translation.make_reader(asked, call, engine.style, end),
                engine.style.call_id,
                asked.parallel_tool_calls is not False,
            ),
        )
        return await _respond(answer, asked, Response.of(asked, name, shape, len(requests)))

    @router.post("/v1/embeddings")
    async def embeddings(asked: EmbeddingsAsked, request: Request) -> HttpResponse:
        engine = service.engine_of(EmbeddingEngine, asked.model)
        return _json(await engine.answer(asked, request.receive))

    @router.post("/v1/rerank")
    async def rerank(asked: RankingAsked, request: Request) -> HttpResponse:
        engine = service.engine_of(RankingEngine, asked.model)
        return _json(await engine.answer(asked, request.receive))

    @router.post("/tokenize")
    async def tokenized(asked: TokenizeAsked) -> HttpResponse:
        generator = service.engine_of(Engine, asked.model).generator
        return _json(await asyncio.to_thread(tokens.tokenize, generator, asked))

    @router.post("/detokenize")
    async def detokenized(asked: DetokenizeAsked) -> HttpResponse:
        generator = service.engine_of(Engine, asked.model).generator
        return _json(await asyncio.to_thread(tokens.detokenize, generator, asked))

    return router


async def _respond(answer: Answer, asked: TextAsked, response: Response) -> HttpResponse:
    """Writes an answer as the client wants it."""
    if not asked.stream:
        return _json(await response.whole(answer))
    pieces = response.stream(answer, asked.usage_in_stream)
    return StreamingResponse(pieces, media_type="text/event-stream", headers=UNBUFFERED)


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    return HttpResponse(in_json(value), status, headers, "application/json")


def _answer_of(error: ApiError) -> HttpResponse:
    return _json(error.body(), error.status, error.headers)


async def _invalid(request: Request, error: Any) -> HttpResponse:
    return _answer_of(invalid(error.errors()))


async def _refused(request: Request, error: Any) -> HttpResponse:
    return _answer_of(no_request(f"{request.method} {request.url.path}", error))
