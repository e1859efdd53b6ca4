"""The ASGI application: routes, error bodies and middleware around one engine client.

Knows an `EngineClient`; whether an engine, a simulator or a mock stands behind it makes no difference.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from belady.api import chat, completions, models, operations, tokens
from belady.api.config import ApiConfig
from belady.api.context import Context
from belady.api.errors import ApiError
from belady.api.gate import Gate
from belady.core.client import EngineClient

ALL_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def create_app(client: EngineClient, config: ApiConfig | None = None) -> Starlette:
    """The application; `app.state.context` is the server's `Context`. Subscribes its metrics to `client`."""
    owner = Context(client, config or ApiConfig())
    app = Starlette(
        routes=_routes(),
        middleware=_middleware(owner),
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
        },
    )
    app.state.context = owner
    return app


def _routes() -> list[Route]:
    routes = [
        Route("/v1/chat/completions", chat.chat, methods=["POST"]),
        Route("/v1/completions", completions.completions, methods=["POST"]),
        Route("/v1/models", models.list_models, methods=["GET"]),
        Route("/v1/models/{name:path}", models.get_model, methods=["GET"]),
        Route("/tokenize", tokens.tokenize, methods=["POST"]),
        Route("/detokenize", tokens.detokenize, methods=["POST"]),
        Route("/health", operations.health, methods=["GET"]),
        Route("/ping", operations.health, methods=["GET", "POST"]),
        Route("/ready", operations.ready, methods=["GET"]),
        Route("/version", operations.version, methods=["GET"]),
        Route("/metrics", operations.metrics, methods=["GET"]),
    ]
    for path, advice in operations.ABSENT.items():
        routes.append(Route(path, operations.absent(advice), methods=ALL_METHODS))
    return routes


def _middleware(owner: Context) -> list[Middleware]:
    layers = []
    if owner.config.cors_origins:
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(owner.config.cors_origins),
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=["x-request-id"],
            )
        )
    layers.append(Middleware(Gate, owner=owner))
    return layers


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404:
        made = ApiError(404, f"there is no {path} here", kind="not_found_error", code="not_found")
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        message = f"{request.method} is not allowed on {path}: use {allowed}"
        made = ApiError(405, message, code="method_not_allowed", headers=error.headers)
    else:
        made = ApiError(error.status_code, error.detail, code="http_error", headers=error.headers)
    return made.response()
