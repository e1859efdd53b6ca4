"""The whole thing for real: the default model, the engine, a server process and the `openai` SDK."""

from __future__ import annotations

import math
import signal
import time

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.model

USER = [{"role": "user", "content": "Name the capital of France in one short sentence."}]


@pytest.fixture(scope="module")
def url(real_server):
    return real_server["url"]


@pytest.fixture(scope="module")
def model(real_server):
    return real_server["model"]


@pytest.fixture(scope="module")
def client(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0, timeout=120) as client:
        yield client


def greedy(client, model, **fields):
    fields = {"messages": USER, "max_tokens": 16, "temperature": 0} | fields
    return client.chat.completions.create(model=model, **fields)


def metrics(url):
    text = httpx.get(f"{url}/metrics").text
    return {
        s.name: s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if set(s.labels) <= {"engine", "model_name"}
    }


def test_model_is_listed(client, model):
    assert model in [m.id for m in client.models.list()]


def test_answers_sensibly_and_reuses_the_prompt(client, model):
    first = greedy(client, model)
    again = greedy(client, model)
    assert "Paris" in first.choices[0].message.content
    assert again.choices[0].message.content == first.choices[0].message.content
    # All but the last prompt token can come from the cache.
    assert again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens - 1


def test_stream_equals_whole(client, model):
    whole = greedy(client, model)
    chunks = list(greedy(client, model, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_tokenize_agrees_with_usage(client, model, url):
    count = httpx.post(f"{url}/tokenize", json={"messages": USER}).json()
    assert count["count"] == greedy(client, model).usage.prompt_tokens
    assert "France" in httpx.post(f"{url}/detokenize", json={"tokens": count["tokens"]}).json()["prompt"]


def test_n_and_seed(client, model):
    one = greedy(client, model, temperature=1.0, seed=7, n=2)
    two = greedy(client, model, temperature=1.0, seed=7, n=2)
    texts = [c.message.content for c in one.choices]
    assert texts == [c.message.content for c in two.choices]
    assert one.usage.completion_tokens <= 32


def test_greedy_choices_are_equal(client, model):
    texts = {c.message.content for c in greedy(client, model, n=3).choices}
    assert texts == {greedy(client, model).choices[0].message.content}


def test_logprobs(client, model):
    answer = greedy(client, model, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert answer.usage.completion_tokens - 1 <= len(content) <= answer.usage.completion_tokens
    for item in content:
        assert len(item.top_logprobs) == 3
        assert item.top_logprobs[0].logprob == max(t.logprob for t in item.top_logprobs)
        assert item.logprob == pytest.approx(item.top_logprobs[0].logprob)  # greedy takes the likeliest
        assert sum(math.exp(t.logprob) for t in item.top_logprobs) <= 1.0001


def test_completions_and_stop(client, model):
    answer = client.completions.create(
        model=model, prompt="One, two, three, four, five,", max_tokens=24, temperature=0
    )
    assert "six" in answer.choices[0].text
    cut = client.completions.create(
        model=model, prompt="One, two, three, four, five,", max_tokens=24, temperature=0, stop="six"
    )
    assert cut.choices[0].text == answer.choices[0].text.partition("six")[0]
    assert cut.choices[0].finish_reason == "stop"


def test_ignore_eos_and_length(client, model):
    answer = greedy(client, model, max_tokens=20, extra_body={"ignore_eos": True, "min_tokens": 20})
    assert answer.usage.completion_tokens == 20
    assert answer.choices[0].finish_reason == "length"


def test_too_long_a_prompt_is_refused_with_its_true_length(client, model, url):
    words = "word " * 20_000
    true_count = httpx.post(
        f"{url}/tokenize", json={"messages": [{"role": "user", "content": words}]}
    ).json()["count"]
    with pytest.raises(openai.BadRequestError) as caught:
        greedy(client, model, messages=[{"role": "user", "content": words}])
    assert caught.value.code == "context_length_exceeded"
    assert str(true_count) in caught.value.message
    assert "Paris" in greedy(client, model).choices[0].message.content


def test_leaving_a_stream_frees_it_and_metrics_tell(client, model, url):
    before = metrics(url)
    stream = greedy(client, model, max_tokens=2000, stream=True, extra_body={"ignore_eos": True})
    for _, chunk in zip(range(3), stream, strict=False):
        assert chunk.object == "chat.completion.chunk"
    assert metrics(url)["belady:num_requests_running"] == 1
    stream.close()
    deadline = time.monotonic() + 60
    while metrics(url)["belady:num_requests_running"] and time.monotonic() < deadline:
        time.sleep(0.05)
    after = metrics(url)
    assert after["belady:num_requests_running"] == 0
    assert after["belady:generation_tokens_total"] - before["belady:generation_tokens_total"] < 2000


def test_counters_equal_usage(client, model, url):
    before = metrics(url)
    usage = [
        greedy(client, model, messages=[{"role": "user", "content": f"Say {i}."}]).usage for i in range(3)
    ]
    after = metrics(url)

    def grown(name):
        return after[f"belady:{name}"] - before[f"belady:{name}"]

    assert grown("prompt_tokens_total") == sum(u.prompt_tokens for u in usage)
    assert grown("prefix_cache_hits_total") == sum(u.prompt_tokens_details.cached_tokens for u in usage)
    assert grown("generation_tokens_total") == sum(u.completion_tokens for u in usage)
    assert grown("time_to_first_token_seconds_count") == 3
    assert grown("e2e_request_latency_seconds_count") == 3


def test_sigterm_lets_a_stream_finish(real_server, spawn):
    child = spawn("serve", "--port", "0", "--cache-bytes", str(64 << 20), "--max-context", "512")
    url = child.ready()["url"]
    body = {"messages": USER, "stream": True, "max_tokens": 24, "ignore_eos": True, "temperature": 0}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=120) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data:")
        child.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in rest[-2]
    code, error = child.end()
    assert code == 0, error
    assert "Traceback" not in error
