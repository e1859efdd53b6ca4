"""`/v1/completions`, `/tokenize` and `/detokenize` over the mock engine."""

from __future__ import annotations

import pytest

from belady.api.mock import BOS


def test_string(server):
    body = server.complete("[user] hey", max_tokens=50).json()
    assert body["object"] == "text_completion"
    assert [c["text"] for c in body["choices"]] == ["echo: hey"]
    assert body["usage"]["prompt_tokens"] == len("[user] hey") + 1
    assert server.engine.requests[-1].prompt_ids[0] == BOS


def test_default_is_sixteen_tokens(server):
    server.complete()
    assert server.engine.requests[-1].sampling.max_tokens == 16


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (["a", "b"], [[BOS, 97], [BOS, 98]]),
        (["a", [5]], [[BOS, 97], [5]]),
    ],
)
def test_prompt_forms(server, prompt, ids):
    body = server.complete(prompt).json()
    assert [list(r.prompt_ids) for r in server.engine.requests] == ids
    assert [c["index"] for c in body["choices"]] == list(range(len(ids)))
    assert body["usage"]["prompt_tokens"] == sum(map(len, ids))


def test_several_prompts_times_n(server, events):
    body = server.complete(["[user] a", "[user] b"], n=2).json()
    texts = ["echo: a", "echo1: a", "echo: b", "echo1: b"]
    assert [c["text"] for c in body["choices"]] == texts
    streamed = [""] * 4
    chunks = events(
        server.complete(["[user] a", "[user] b"], n=2, stream=True, stream_options={"include_usage": True})
    )
    for chunk in chunks[:-1]:
        streamed[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert streamed == texts
    assert chunks[-1]["usage"]["completion_tokens"] == sum(len(t) + 1 for t in texts)
    assert chunks[-1]["usage"]["prompt_tokens"] == body["usage"]["prompt_tokens"]


def test_legacy_logprobs(server, events):
    logprobs = server.complete("[user] hey", logprobs=2, max_tokens=3).json()["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["e", "c", "h"]
    assert logprobs["text_offset"] == [0, 1, 2]
    assert [set(top) for top in logprobs["top_logprobs"]] == [{"e", "f"}, {"c", "d"}, {"h", "i"}]
    chunks = events(server.complete("[user] hey", logprobs=0, max_tokens=3, stream=True))
    assert [c["choices"][0]["logprobs"]["text_offset"] for c in chunks] == [[0], [1], [2]]
    assert [c["choices"][0]["logprobs"]["top_logprobs"] for c in chunks] == [[{}], [{}], [{}]]


def test_tokenize_and_back(server):
    body = server.post("/tokenize", {"prompt": "é!", "model": "mock"}).json()
    assert body == {"count": 4, "max_model_len": 1024, "tokens": [BOS, 195, 169, 33], "token_strs": None}
    plain = server.post("/tokenize", {"prompt": "é!", "add_special_tokens": False}).json()
    assert plain["tokens"] == body["tokens"][1:]
    assert server.post("/detokenize", {"tokens": plain["tokens"]}).json() == {"prompt": "é!"}


def test_tokenize_messages_equals_the_chat_prompt(server):
    messages = [{"role": "user", "content": "hello"}]
    tokens = server.post("/tokenize", {"messages": messages, "return_token_strs": True}).json()
    server.chat("hello")
    assert tokens["tokens"] == list(server.engine.requests[-1].prompt_ids)
    assert "".join(tokens["token_strs"]) == "[user] hello\n[assistant] "


def test_tokenize_wants_exactly_one_source(server):
    for body in ({}, {"prompt": "a", "messages": []}):
        assert server.post("/tokenize", body).status_code == 400
    assert "token id" in server.post("/detokenize", {"tokens": [999]}).json()["error"]["message"]
