"""Keys, request ids, CORS and identity."""

from __future__ import annotations

import pytest

from belady.api import identity
from belady.api.config import ApiConfig
from belady.api.errors import ApiError


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer nope"}, 401),
        ({"authorization": "Basic k1"}, 401),
        ({"authorization": "Bearer k1"}, 200),
        ({"authorization": "bearer k2"}, 200),
        ({"x-api-key": "k2"}, 200),
        ({"x-api-key": ""}, 401),
    ],
)
def test_keys(make, headers, status):
    server = make(config=ApiConfig(api_keys=("k1", "k2")))
    response = server.request("GET", "/v1/models", headers=headers)
    assert response.status_code == status
    if status == 401:
        assert response.json()["error"]["code"] == "invalid_api_key"
        assert "k1" not in response.text


def test_probes_need_no_key(make):
    server = make(config=ApiConfig(api_keys=("k1",)))
    for path in ("/health", "/ready", "/ping", "/version", "/metrics"):
        assert server.request("GET", path).status_code == 200
    assert server.request("POST", "/tokenize", json={}).status_code == 401


def test_keys_do_not_show_in_the_config():
    assert "secret" not in repr(ApiConfig(api_keys=("secret",)))


def test_request_id_goes_out_as_it_came(server):
    assert server.chat(stream=True).headers["x-request-id"]
    response = server.request("GET", "/v1/nothing", headers={"x-request-id": "abc-1"})
    assert response.headers["x-request-id"] == "abc-1"
    response = server.request("GET", "/health", headers={"x-request-id": "x" * 500})
    assert len(response.headers["x-request-id"]) == 32


def test_cors_only_when_asked(make):
    headers = {"origin": "http://page", "access-control-request-method": "POST"}
    allowed = make(config=ApiConfig(cors_origins=("http://page",), api_keys=("k",)))
    response = allowed.request("OPTIONS", "/v1/models", headers=headers)
    assert response.headers["access-control-allow-origin"] == "http://page"
    refused = allowed.request("GET", "/v1/models", headers={"origin": "http://page"})
    assert refused.headers["access-control-allow-origin"] == "http://page"  # a browser must see the 401
    assert "access-control-allow-origin" not in make().request("GET", "/health", headers=headers).headers


@pytest.mark.parametrize(
    ("headers", "body", "program", "parent"),
    [
        ({}, None, None, None),
        ({}, "s", "s", None),
        ({"x-session-id": "h"}, None, "h", None),
        ({"x-session-id": "h"}, "s", "s", None),
        ({"x-dynamo-session-id": "d", "x-parent-session-id": "p"}, "s", "d", None),
        ({"x-dynamo-session-id": "d", "x-dynamo-parent-session-id": "p"}, None, "d", "p"),
        ({"x-session-id": "o", "x-parent-session-id": "p"}, None, "o", "p"),
        ({"x-claude-code-session-id": "c"}, None, "c", None),
        ({"x-claude-code-session-id": "c", "x-claude-code-agent-id": "a"}, None, "c/a", "c"),
        (
            {
                "x-claude-code-session-id": "c",
                "x-claude-code-agent-id": "a",
                "x-claude-code-parent-agent-id": "b",
            },
            None,
            "c/a",
            "c/b",
        ),
        ({"thread-id": "t", "x-codex-parent-thread-id": "p"}, None, "t", "p"),
        ({"session_id": "old"}, None, "old", None),
    ],
)
def test_identity(headers, body, program, parent):
    assert identity.identify(headers, body) == identity.Identity(program, parent)


def test_priority_is_higher_sooner_and_the_vllm_header_is_turned():
    assert identity.priority({}, None) == 0
    assert identity.priority({}, 5) == 5
    assert identity.priority({"x-vllm-priority": "5"}, 1) == -5
    assert identity.priority({"x-vllm-priority": "-2"}, None) == 2
    for text in ("soon", "--5", "-", "\u00b2", "1.5", "9" * 11):
        with pytest.raises(ApiError, match="whole number"):
            identity.priority({"x-vllm-priority": text}, None)
    with pytest.raises(ApiError, match="at most 256"):
        identity.identify({"x-session-id": "x" * 257}, None)


def test_identity_reaches_the_engine(server):
    server.chat()
    server.post(
        "/v1/completions",
        {"prompt": "x"},
        headers={"X-Session-ID": "root", "X-Parent-Session-ID": "up", "X-Vllm-Priority": "-1"},
    )
    request = server.engine.requests[-1]
    assert (request.program, request.parent, request.priority) == ("root", "up", 1)
