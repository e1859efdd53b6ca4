"""What operators and routers ask: is it alive, is it ready, what is it, how is it doing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from belady import __version__
from belady.api.context import context
from belady.api.errors import ApiError, json_response

ABSENT: Mapping[str, str] = {
    "/v1/responses": "use /v1/chat/completions",
    "/v1/responses/{rest:path}": "use /v1/chat/completions",
    "/v1/messages": "use /v1/chat/completions",
    "/v1/messages/count_tokens": "use /tokenize",
    "/v1/embeddings": "generation models only are served",
    "/v1/rerank": "generation models only are served",
    "/v1/score": "generation models only are served",
    "/v1/moderations": "generation models only are served",
    "/v1/audio/{rest:path}": "text models only are served",
    "/v1/images/{rest:path}": "text models only are served",
    "/v1/files": "send requests one by one",
    "/v1/batches": "send requests one by one",
    "/v1/load_lora_adapter": "adapters are not supported yet",
    "/v1/unload_lora_adapter": "adapters are not supported yet",
    "/reset_prefix_cache": "use another `cache_salt` to start from an empty cache",
    "/kv_event_sources": "see /metrics",
    "/server_info": "see /version and /v1/models",
}
"""Endpoints that clients of other servers know, and what to do here instead."""


async def health(request: Request) -> Response:
    """200 while the process lives."""
    return json_response({"status": "ok"})


async def ready(request: Request) -> Response:
    """200 while new requests are taken, 503 while draining."""
    if context(request).draining:
        return json_response({"status": "draining"}, status=503)
    return json_response({"status": "ready"})


async def version(request: Request) -> Response:
    return json_response({"version": __version__})


async def metrics(request: Request) -> Response:
    return Response(context(request).metrics.render(), media_type=CONTENT_TYPE_LATEST)


def absent(advice: str) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that answers 501 with `advice`."""

    async def endpoint(request: Request) -> Response:
        message = f"{request.url.path} is not implemented here: {advice}"
        raise ApiError(501, message, kind="not_implemented_error", code="not_implemented")

    return endpoint
