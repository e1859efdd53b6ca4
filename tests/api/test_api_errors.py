"""Bad input: every case has its status, code and a message that says what to do, and the server lives on."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from belady.api.config import ApiConfig
from belady.api.errors import ApiError
from belady.api.mock import MockConfig
from belady.api.sampling import resolve_max_tokens
from belady.core.client import ModelInfo

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]


def error_of(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


@pytest.mark.parametrize(
    ("raw", "code", "says"),
    [
        (b"", "invalid_json", "empty"),
        (b"{", "invalid_json", "not valid JSON"),
        (b"{'a': 1}", "invalid_json", "byte 1"),
        (b"[]", "invalid_type", "array"),
        (b'{"messages": "\xff"}', "invalid_utf8", "UTF-8"),
        (b'{"unknown": "\xff", "messages": []}', "invalid_utf8", "UTF-8"),
        (b'{"temperature": NaN}', "invalid_number", "NaN"),
        (b'{"temperature": -Infinity}', "invalid_number", "finite"),
        (b'{"temperature": 1e999}', "invalid_type", "range"),
        (b'{"messages": ' + b"[" * 100_000, "invalid_type", "messages[0]"),
        (b'{"x": ' + b"[" * 100_000, "invalid_json", "recursion"),
        (b'{"seed": ' + b"9" * 10_000 + b"}", None, ""),
    ],
)
def test_malformed_bodies(server, raw, code, says):
    error = error_of(server.request("POST", CHAT, content=raw), 400)
    assert code is None or error["code"] == code
    assert says in error["message"]
    assert server.chat().status_code == 200


@pytest.mark.parametrize(
    ("fields", "param", "code", "says"),
    [
        ({"temperature": -0.1}, "temperature", "invalid_value", "from 0"),
        ({"temperature": "hot"}, "temperature", "invalid_type", "float"),
        ({"top_p": 0}, "top_p", "invalid_value", "above 0"),
        ({"top_p": 1.5}, "top_p", "invalid_value", "to 1"),
        ({"top_k": -2}, "top_k", "invalid_value", "at least 1"),
        ({"min_p": -1}, "min_p", "invalid_value", "from 0"),
        ({"repetition_penalty": 0}, "repetition_penalty", "invalid_value", "above 0"),
        ({"frequency_penalty": 3}, "frequency_penalty", "invalid_value", "to 2"),
        ({"presence_penalty": -3}, "presence_penalty", "invalid_value", "from -2"),
        ({"n": 0}, "n", "invalid_value", "1 to 16"),
        ({"n": 10**9}, "n", "invalid_value", "1 to 16"),
        ({"n": 1.5}, "n", "invalid_type", "int"),
        ({"seed": 2**64}, "seed", "invalid_value", "64 bits"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value", "at least 1"),
        ({"max_tokens": True}, "max_tokens", "invalid_type", "bool"),
        ({"max_tokens": 5000}, "max_tokens", "context_length_exceeded", "ask for at most"),
        ({"min_tokens": 9, "max_tokens": 4}, "min_tokens", "invalid_value", "from 0 to 4"),
        ({"stop": ["x"] * 17}, "stop", "invalid_value", "at most 16"),
        ({"stop": ""}, "stop", "invalid_value", "empty"),
        ({"stop": 3}, "stop", "invalid_type", "int"),
        ({"stop_token_ids": [999]}, "stop_token_ids", "invalid_value", "token id"),
        ({"logit_bias": {"1": 101}}, "logit_bias", "invalid_value", "-100 to 100"),
        ({"logit_bias": {"99999": 1}}, "logit_bias", "invalid_value", "token id"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_value", "token id"),
        ({"top_logprobs": 3}, "top_logprobs", "invalid_value", "logprobs: true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value", "0 to 20"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value", "stream"),
        ({"cache_salt": ""}, "cache_salt", "invalid_value", "empty"),
        ({"session_id": "x" * 300}, "session_id", "invalid_value", "at most 256"),
        ({"priority": 2**40}, "priority", "invalid_value", "32 bits"),
        ({"tools": [{"type": "function"}]}, "tools", "unsupported_parameter", "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value", "needs `tools`"),
        ({"functions": []}, "functions", "unsupported_parameter", "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter", "text"),
        ({"guided_regex": "a+"}, "guided_regex", "unsupported_parameter", "structured"),
        ({"modalities": ["audio"]}, "modalities", "unsupported_parameter", "text"),
        ({"best_of": 4}, "best_of", "unsupported_parameter", "`n`"),
        ({"use_beam_search": True}, "use_beam_search", "unsupported_parameter", "beam"),
        ({"skip_special_tokens": False}, "skip_special_tokens", "unsupported_parameter", "special"),
        ({"prompt_logprobs": 1}, "prompt_logprobs", "unsupported_parameter", "prompt"),
        ({"continue_final_message": True}, "continue_final_message", "unsupported_parameter", "last message"),
        (
            {"chat_template_kwargs": {"tools": []}},
            "chat_template_kwargs",
            "invalid_value",
            "set by the server",
        ),
        ({"chat_template": "{{x}}"}, "chat_template", "unsupported_parameter", "own template"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)
def test_bad_fields(server, fields, param, code, says):
    error = error_of(server.chat(**fields), 400)
    assert (error["param"], error["code"]) == (param, code)
    assert says in error["message"]
    assert error["type"] == "invalid_request_error"
    if param != "stream_options":
        assert error_of(server.chat(**fields, stream=True), 400)["code"] == code
    assert not server.engine.requests
    assert server.chat().status_code == 200


@pytest.mark.parametrize(
    ("messages", "param", "code", "says"),
    [
        ([], "messages", "invalid_value", "at least one"),
        ("hi", "messages", "invalid_type", "array"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role", "invalid_value", "assistant"),
        ([{"content": "x"}], "messages[0]", "invalid_type", "role"),
        ([{"role": "user"}], "messages[0].content", "invalid_value", "missing"),
        ([{"role": "user", "content": 3}], "messages[0].content", "invalid_type", "int"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type", "unsupported_parameter", "text"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text", "invalid_type", "string"),
        ([*USER, {"role": "system", "content": "late"}], "messages", "template_error", "must come first"),
    ],
)  # fmt: skip
def test_bad_messages(server, messages, param, code, says):
    error = error_of(server.post(CHAT, {"messages": messages}), 400)
    assert (error["param"], error["code"]) == (param, code)
    assert says in error["message"]


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("", "x"),
        ([], "empty"),
        ([[]], "empty"),
        ([1, -5], "-5"),
        ([1, 999], "999"),
        ([1, 1.5], "1.5"),
        ([1, True], "True"),
        ([{"a": 1}], "token ids"),
        (7, "must be a string"),
        (None, "must be a string"),
        (["x"] * 65, "at most 64"),
    ],
)
def test_bad_prompts(server, prompt, says):
    if prompt == "":  # with its start token this is one token, and legal
        assert server.complete("").status_code == 200
        error = error_of(server.complete("", add_special_tokens=False), 400)
        says = "empty"
    else:
        error = error_of(server.complete(prompt), 400)
    assert says in error["message"]


@pytest.mark.parametrize("field", [{"echo": True}, {"suffix": "x"}, {"response_format": {"type": "text"}}])
def test_completions_refuses_what_it_lacks(server, field):
    assert error_of(server.complete(**field), 400)["code"] == "unsupported_parameter"


def test_prompt_longer_than_the_window(server):
    error = error_of(server.chat("x" * 2000), 400)
    assert error["code"] == "context_length_exceeded"
    true_count = len("[user] " + "x" * 2000 + "\n[assistant] ")
    assert f"{true_count} tokens" in error["message"]
    assert "1024" in error["message"]
    assert not server.engine.requests


def test_a_server_that_holds_less_than_the_model_says_so():
    model = ModelInfo("m", 600, 10, 640, 16, 0, 8192)
    with pytest.raises(ApiError, match=r"this server holds at most 600 .* 8192; .*--cache-bytes") as error:
        resolve_max_tokens(None, 700, model, None)
    assert error.value.code == "context_length_exceeded"
    with pytest.raises(ApiError, match="context window is 600"):
        resolve_max_tokens(None, 700, ModelInfo("m", 600, 10, 640, 16, 0, 600), None)


def test_the_field_that_the_client_used_is_named(server):
    error = error_of(server.chat(max_completion_tokens=5000), 400)
    assert error["param"] == "max_completion_tokens"
    error = error_of(server.chat(max_completion_tokens=0), 400)
    assert (error["param"], "`max_completion_tokens` is 0" in error["message"]) == (
        "max_completion_tokens",
        True,
    )


def test_a_missing_field_is_named(server):
    error = error_of(server.request("POST", CHAT, json={"model": "mock"}), 400)
    assert (error["code"], error["param"]) == ("missing_field", "messages")


def test_unknown_model(server):
    error = error_of(server.chat(model="gpt-9"), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "mock" in error["message"]
    assert error_of(server.request("GET", "/v1/models/gpt-9"), 404)["code"] == "model_not_found"


@pytest.mark.parametrize("announced", [True, False])
def test_body_over_the_limit(make, announced):
    server = make(config=ApiConfig(max_body_bytes=1000))
    raw = json.dumps({"messages": USER, "pad": "x" * 2000}).encode()

    async def pieces():
        for at in range(0, len(raw), 100):
            yield raw[at : at + 100]

    response = server.request("POST", CHAT, content=raw if announced else pieces())
    error = error_of(response, 413)
    assert error["code"] == "body_too_large"
    assert "1000 bytes" in error["message"]
    assert server.chat().status_code == 200


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("context_length_exceeded", 400),
        ("refused", 400),
        ("rejected", 429),
        ("overloaded", 503),
        ("something_new", 500),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_engine_refusals_have_a_status_even_in_streams(make, code, status, stream):
    server = make(MockConfig(refuse=(code, "do less")))
    error = error_of(server.chat(stream=stream), status)
    assert (error["code"], error["message"]) == (code, "do less")


def test_failure_in_mid_stream_ends_with_error_and_done(make, events):
    server = make(MockConfig(fail_after=3, token_delay=0.001))
    *chunks, last = events(server.chat(stream=True))
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "ec"
    assert "told to fail" in last["error"]["message"]
    assert server.engine.active == 0
    assert "told to fail" in error_of(server.chat(), 500)["message"]


def test_unexpected_exception_is_a_json_500(server, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(server.engine.text, "encode", broken, raising=False)
    with caplog.at_level("ERROR", "belady.api"):
        response = server.complete("x")
    error = error_of(response, 500)
    assert error["code"] == "internal_error"
    assert "boom" not in error["message"]
    # The message sends the reader to the log, so the id has to be in both.
    assert response.headers["x-request-id"] in caplog.text
    assert "boom" in caplog.text


@pytest.mark.parametrize(
    "path",
    ["/v1/responses", "/v1/responses/abc/cancel", "/v1/messages", "/v1/messages/count_tokens", "/v1/embeddings",
     "/v1/load_lora_adapter", "/reset_prefix_cache"],
)  # fmt: skip
def test_absent_endpoints_say_so(server, path):
    error = error_of(server.post(path, {}), 501)
    assert error["code"] == "not_implemented"
    assert path in error["message"]


def test_404_and_405(server):
    assert error_of(server.request("GET", "/v1/nothing"), 404)["code"] == "not_found"
    response = server.request("GET", CHAT)
    assert error_of(response, 405)["code"] == "method_not_allowed"
    assert "POST" in response.headers["allow"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["messages", "prompt", "n", "stop", "temperature", "max_tokens", "logit_bias", "logprobs", "stream", "tools",
     "tool_choice", "response_format", "stream_options", "seed", "top_k", "stop_token_ids", "cache_salt"]
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(FIELDS, JSON, max_size=4), path=st.sampled_from([CHAT, "/v1/completions"]))
def test_no_json_body_gets_a_500(server, body, path):
    body = {"messages": USER, "prompt": "x", "max_tokens": 4} | body
    response = server.request("POST", path, content=json.dumps(body, allow_nan=False).encode())
    assert response.status_code in (200, 400), response.text


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=60))
def test_no_bytes_get_a_500(server, raw):
    error_of(server.request("POST", CHAT, content=raw), 400)
