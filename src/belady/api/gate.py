"""What every request passes before its route: a request id, the key check, the refusal while draining, and the last
resort for exceptions nobody expected.

Plain ASGI, so streams pass through untouched. Knows paths and headers, never bodies.
"""

from __future__ import annotations

import hmac
import logging
import re
import uuid
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from belady.api.context import Context
from belady.api.errors import ApiError, internal

log = logging.getLogger("belady.api")

OPEN_PATHS = frozenset({"/health", "/ready", "/ping", "/version", "/metrics"})
"""Paths that need no key and are answered while draining: probes and scrapers have no secrets."""

_UNEXPECTED = "an internal error occurred: see the server's log under this request's x-request-id"
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class Gate:
    """Wraps an application. `x-request-id` goes out as it came in, or fresh when absent or unusable."""

    def __init__(self, app: ASGIApp, owner: Context) -> None:
        self._app = app
        self._owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex

        begun = False

        async def send_with_id(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await refusal.response()(scope, receive, send_with_id)
            return
        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            if begun:
                raise  # too late for a status: the connection has to break
            # Answered here and not re-raised, so that the connection lives on for the client's next request.
            log.exception("request %s failed", request_id)
            await internal(_UNEXPECTED).response()(scope, receive, send_with_id)

    def _refusal(self, scope: Scope, headers: Headers) -> ApiError | None:
        if scope["path"] in OPEN_PATHS or scope["method"] == "OPTIONS":
            return None
        keys = self._owner.config.api_keys
        if keys and not _has_key(headers, keys):
            return ApiError(
                401,
                "a valid API key is needed: send `Authorization: Bearer KEY`",
                kind="authentication_error",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        if self._owner.draining:
            return ApiError(
                503,
                "the server is shutting down: retry on another one",
                kind="overloaded_error",
                code="draining",
                headers={"retry-after": "1", "connection": "close"},
            )
        return None


def _has_key(headers: Headers, keys: Sequence[str]) -> bool:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    # Compare with every key, so that timing tells nothing about which one was close.
    matches = [hmac.compare_digest(given.encode(), key.encode()) for key in keys]
    return any(matches)
