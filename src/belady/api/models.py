"""`/v1/models`: which model is served, under which names."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from belady.api.context import Context, context
from belady.api.errors import ApiError, json_response


def check_model(owner: Context, asked: str | None) -> str:
    """The name to answer with: the asked one, or the first served one when none was asked. 404 for others."""
    if asked is None:
        return owner.names[0]
    if asked in owner.names:
        return asked
    served = ", ".join(owner.names)
    message = f"the model {asked[:200]!r} is not served here: use {served}"
    raise ApiError(404, message, kind="not_found_error", param="model", code="model_not_found")


async def list_models(request: Request) -> Response:
    owner = context(request)
    return json_response({"object": "list", "data": [_card(owner, name) for name in owner.names]})


async def get_model(request: Request) -> Response:
    owner = context(request)
    return json_response(_card(owner, check_model(owner, request.path_params["name"])))


def _card(owner: Context, name: str) -> dict[str, object]:
    model = owner.client.model
    return {
        "id": name,
        "object": "model",
        "created": owner.created,
        "owned_by": "belady",
        "root": model.name,
        "parent": None,
        "max_model_len": model.context_length,
    }
