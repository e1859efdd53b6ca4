"""Errors as OpenAI clients expect them: `{"error": {message, type, param, code}}` with a fitting status.

Knows how engine codes map to statuses. Knows nothing of routes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from belady.core.client import EngineError

INVALID = "invalid_request_error"
SERVER = "server_error"

ENGINE_STATUS: Mapping[str, tuple[int, str]] = {
    "context_length_exceeded": (400, INVALID),
    "cache_too_small": (400, INVALID),
    "invalid_request": (400, INVALID),
    "refused": (400, INVALID),
    "rejected": (429, "rate_limit_error"),
    "overloaded": (503, "overloaded_error"),
    "draining": (503, "overloaded_error"),
    "closed": (503, "overloaded_error"),
}
"""Status and error type per `EngineError.code`; any other code is a server error (500)."""


class ApiError(Exception):
    """A request that gets an error body. `message` says what was wrong and what to do."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, object]:
        """The JSON object sent to the client."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> Response:
        return json_response(self.body(), status=self.status, headers=self.headers)


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A 400: the client's request must change."""
    return ApiError(400, message, param=param, code=code or "invalid_value")


def unsupported(param: str, message: str) -> ApiError:
    """A 400 for semantics this server does not have: refused rather than silently ignored."""
    return ApiError(400, message, param=param, code="unsupported_parameter")


def from_engine(error: EngineError) -> ApiError:
    """The HTTP form of an engine's refusal."""
    status, kind = ENGINE_STATUS.get(error.code, (500, SERVER))
    return ApiError(status, str(error), kind=kind, code=error.code)


def internal(message: str, code: str = "internal_error") -> ApiError:
    """A 500: not the client's fault."""
    return ApiError(500, message, kind=SERVER, code=code)


def json_response(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`value` encoded by msgspec."""
    return Response(
        msgspec.json.encode(value), status_code=status, headers=headers, media_type="application/json"
    )
