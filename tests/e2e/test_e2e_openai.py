"""The `openai` SDK, unmodified, against a real server on a real socket over the mock engine."""

from __future__ import annotations

import asyncio
import time

import openai
import pytest

from belady.api.config import ApiConfig
from belady.api.mock import MockConfig

USER = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def server(serve):
    with serve(config=ApiConfig(api_keys=("k",))) as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as client:
        yield client


def test_models(client):
    assert [m.id for m in client.models.list()] == ["mock"]
    assert client.models.retrieve("mock").owned_by == "belady"


def test_chat(client):
    answer = client.chat.completions.create(model="mock", messages=USER, n=2, logprobs=True, top_logprobs=1)
    assert [c.message.content for c in answer.choices] == ["echo: hello", "echo1: hello"]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].logprobs.content[0].top_logprobs[0].token == "e"
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_stream(client):
    stream = client.chat.completions.create(
        model="mock", messages=USER, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == "echo: hello"
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0  # the call before had the same prompt
    assert chunks[0].choices[0].delta.role == "assistant"


def test_stream_helper_accumulates(client):
    with client.chat.completions.stream(model="mock", messages=USER) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "echo: hello"


def test_completions(client):
    answer = client.completions.create(
        model="mock", prompt=["[user] a", "[user] b"], max_tokens=20, logprobs=1
    )
    assert [c.text for c in answer.choices] == ["echo: a", "echo: b"]
    assert answer.choices[0].logprobs.tokens[0] == "e"
    chunks = client.completions.create(model="mock", prompt="[user] a", stream=True, stop=":")
    assert "".join(c.choices[0].text for c in chunks) == "echo"


def test_async_client(server):
    async def main():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as client:
            calls = [
                client.chat.completions.create(model="mock", messages=[{"role": "user", "content": f"m{i}"}])
                for i in range(20)
            ]
            return [a.choices[0].message.content for a in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [f"echo: m{i}" for i in range(20)]


def test_errors_map_to_sdk_exceptions(client, server):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt", messages=USER)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="mock", messages=USER, temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="mock", messages=[{"role": "user", "content": "x" * 5000}], stream=True
        )
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0).models.list()
    with pytest.raises(openai.InternalServerError) as caught:
        client.responses.create(model="mock", input="x")
    assert caught.value.status_code == 501


def test_error_in_mid_stream_raises_in_the_sdk(serve):
    with serve(MockConfig(fail_after=3, token_delay=0.01)) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0)
        got = []
        with pytest.raises(openai.APIError, match="told to fail"):
            for chunk in client.chat.completions.create(model="mock", messages=USER, stream=True):
                got.append(chunk)
        assert got


def test_leaving_a_stream_aborts_it(serve):
    with serve(MockConfig(hang_after=3)) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0)
        stream = client.chat.completions.create(model="mock", messages=USER, stream=True)
        next(iter(stream))
        assert server.engine.active == 1
        stream.close()
        deadline = time.monotonic() + 20
        while server.engine.active and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (server.engine.active, server.engine.aborted) == (0, 1)
