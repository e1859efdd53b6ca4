"""`/v1/chat/completions` over the mock engine."""

from __future__ import annotations

import msgspec
import pytest

from belady.api.prompts import Message, template_messages


def test_whole_answer(server):
    body = server.chat("hi é").json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == "mock"
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "echo: hi é", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"] is None
    prompt = len("[user] hi é\n[assistant] ".encode())
    output = len("echo: hi é".encode()) + 1
    assert body["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_stream_equals_whole(server, events):
    whole = server.chat("héllo").json()["choices"][0]["message"]["content"]
    response = server.chat("héllo", stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    chunks = events(response)
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert len({c["id"] for c in chunks}) == 1
    deltas = [c["choices"][0]["delta"] for c in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(d.get("content", "") for d in deltas) == whole
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"][0]["finish_reason"]] == ["stop"]
    assert all("usage" not in c for c in chunks)


def test_stream_usage_is_last_and_alone(server, events):
    chunks = events(server.chat(stream=True, stream_options={"include_usage": True}))
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert all(c["usage"] is None for c in chunks[:-1])
    assert chunks[-1]["usage"] == server.chat().json()["usage"] | {
        "prompt_tokens_details": {"cached_tokens": 0}
    }


def test_second_call_reports_cached_tokens(server):
    server.chat("a long question about everything")
    usage = server.chat("a long question about everything").json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def test_cache_salt_isolates(server):
    server.chat("same words", cache_salt="a")
    usage = server.chat("same words", cache_salt="b").json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert [r.salt for r in server.engine.requests] == ["a", "b"]


def test_n_choices_share_the_prompt(server, events):
    body = server.chat(n=3).json()
    texts = [c["message"]["content"] for c in body["choices"]]
    assert texts == ["echo: hello", "echo1: hello", "echo2: hello"]
    assert body["usage"]["prompt_tokens"] == len("[user] hello\n[assistant] ")
    assert body["usage"]["completion_tokens"] == sum(len(t) + 1 for t in texts)
    streamed = ["", "", ""]
    for chunk in events(server.chat(n=3, stream=True)):
        (choice,) = chunk["choices"]
        streamed[choice["index"]] += choice["delta"].get("content", "")
    assert streamed == texts


def test_logprobs(server, events):
    content = server.chat(logprobs=True, top_logprobs=2, max_tokens=3).json()["choices"][0]["logprobs"][
        "content"
    ]
    assert [item["token"] for item in content] == ["e", "c", "h"]
    assert [len(item["top_logprobs"]) for item in content] == [2, 2, 2]
    assert content[0]["bytes"] == [101]
    streamed = [
        item
        for chunk in events(server.chat(logprobs=True, max_tokens=3, stream=True))
        for item in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert [item["token"] for item in streamed] == ["e", "c", "h"]
    assert [item["top_logprobs"] for item in streamed] == [[], [], []]


def test_stop_and_length(server):
    stopped = server.chat("abc", stop=["zz", "b"]).json()["choices"][0]
    assert (stopped["message"]["content"], stopped["finish_reason"], stopped["stop_reason"]) == (
        "echo: a",
        "stop",
        "b",
    )
    cut = server.chat("abc", max_completion_tokens=4, max_tokens=9).json()["choices"][0]
    assert (cut["message"]["content"], cut["finish_reason"]) == ("echo", "length")


def test_default_budget_is_what_fits(server):
    server.chat("x")
    sampling = server.engine.requests[-1].sampling
    assert sampling.max_tokens == server.engine.model.context_length - len(
        server.engine.requests[-1].prompt_ids
    )


def test_extensions_reach_the_engine(server):
    server.chat(
        ignore_eos=True, min_tokens=2, max_tokens=5, repetition_penalty=1.1, top_k=7, min_p=0.1, priority=3,
        session_id="s1", seed=-1, temperature=0, top_p=0.5, logit_bias={"65": -100}, stop_token_ids=[1],
        frequency_penalty=1, presence_penalty=-1, include_stop_str_in_output=True,
    )  # fmt: skip
    request = server.engine.requests[-1]
    s = request.sampling
    assert (s.ignore_eos, s.min_tokens, s.max_tokens, s.repetition_penalty) == (True, 2, 5, 1.1)
    assert (s.top_k, s.min_p, s.temperature, s.top_p) == (7, 0.1, 0.0, 0.5)
    assert (s.logit_bias, s.stop_token_ids, s.include_stop_str) == ({65: -100.0}, (1,), True)
    assert (s.frequency_penalty, s.presence_penalty) == (1.0, -1.0)
    assert s.seed is not None and s.seed >= 0
    assert (request.priority, request.program) == (3, "s1")


@pytest.mark.parametrize("value", [-1, 0])
def test_top_k_off(server, value):
    server.chat(top_k=value)
    assert server.engine.requests[-1].sampling.top_k is None


def test_content_parts_and_roles(server):
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]},
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "r", "tool_call_id": "1"},
    ]
    server.post("/v1/chat/completions", {"messages": messages})
    prompt = server.engine.text.decode(server.engine.requests[-1].prompt_ids)
    assert prompt == "[system] be\nbrief\n[user] q\n[assistant] \n[tool] r\n[assistant] "


@pytest.mark.parametrize("arguments", ["{", "[" * 100_000])
def test_arguments_that_are_no_json_stay_text(server, arguments):
    call = {"function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert server.post("/v1/chat/completions", {"messages": messages}).status_code == 200
    [_, made] = template_messages(msgspec.convert(messages, list[Message]))
    assert made["tool_calls"] == [call]


def test_tools_are_rendered_when_no_call_is_wanted(server):
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert server.chat(tools=tools, tool_choice="none").status_code == 200
    prompt = server.engine.text.decode(server.engine.requests[-1].prompt_ids)
    assert prompt.startswith("[tools] 1\n")


def test_unknown_keys_are_ignored(server):
    assert server.chat(some_future_field={"a": 1}, user="u", store=False, metadata={}).status_code == 200


def test_served_names(make):
    from belady.api.config import ApiConfig

    server = make(config=ApiConfig(served_names=("gpt-x", "other")))
    assert server.chat(model="other").json()["model"] == "other"
    assert server.chat().json()["model"] == "gpt-x"
    assert server.chat(model="mock").status_code == 404
