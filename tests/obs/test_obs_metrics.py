"""Metrics: parseable, familiar names, and true numbers."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from belady.core.client import Delta, EngineStats, ModelInfo
from belady.core.events import (
    Evicted,
    Finished,
    FinishReason,
    FirstToken,
    HintOutcome,
    Loss,
    Outcome,
    Preempted,
    Refused,
    Scheduled,
    Stored,
)
from belady.obs.metrics import FIRST_TOKEN_BUCKETS, Metrics, token_buckets

MODEL = ModelInfo("m", 1000, 50, 3200, 16)
LABELS = {"model_name": "m", "engine": "0"}


def make(namespace="belady"):
    return Metrics(MODEL, lambda: EngineStats(3, 2, 0.25, 99), namespace=namespace)


def samples(metrics):
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def value(metrics, name, **extra):
    return samples(metrics)[name, tuple(sorted((LABELS | extra).items()))]


def scheduled(at=1.0, rid=1, *, resumed=False, loaded=0):
    return Scheduled(at, rid, 100, 61, 60, loaded, 1, ((Loss.LAST_TOKEN, 1),), resumed, 1.5)


@pytest.mark.parametrize("namespace", ["belady", "vllm"])
def test_gauges_follow_the_engine(namespace):
    metrics = make(namespace)
    assert value(metrics, f"{namespace}:num_requests_running") == 3
    assert value(metrics, f"{namespace}:num_requests_waiting") == 2
    assert value(metrics, f"{namespace}:kv_cache_usage_perc") == 0.25
    assert value(metrics, f"{namespace}:cache_config_info", block_size="16", num_gpu_blocks="200") == 1


def test_counters_from_events():
    metrics = make()
    metrics.observe([scheduled(), scheduled(resumed=True), Preempted(2.0, 1, 5), Evicted(2.0, 7, 32, True)])
    metrics.observe([Refused(2.0, 9, "too_long", "x"), HintOutcome(2.0, "a", Outcome.CLIPPED, "")])
    metrics.observe([Stored(2.0, 1, None, 0, 16, "")])
    assert value(metrics, "belady:prefix_cache_queries_total") == 100
    assert value(metrics, "belady:prefix_cache_hits_total") == 60
    assert value(metrics, "belady:prompt_tokens_total") == 100
    assert value(metrics, "belady:prompt_tokens_cached_total") == 60
    assert value(metrics, "belady:prompt_tokens_cached_by_source_total", source="device") == 60
    assert value(metrics, "belady:prefix_cache_lost_tokens_total", reason="last_token") == 1
    assert value(metrics, "belady:num_preemptions_total") == 1
    assert value(metrics, "belady:evicted_tokens_total") == 32
    assert value(metrics, "belady:admission_rejections_total", reason="too_long") == 1
    assert value(metrics, "belady:hint_outcomes_total", outcome="clipped") == 1


def test_sources_sum_to_what_was_cached():
    metrics = make()
    metrics.observe([scheduled(loaded=20)])
    assert value(metrics, "belady:prompt_tokens_cached_by_source_total", source="device") == 40
    assert value(metrics, "belady:prompt_tokens_cached_by_source_total", source="external_unspecified") == 20
    assert value(metrics, "belady:prefix_cache_hits_total") == 40


def test_phases_use_the_engine_clock_and_survive_preemption():
    metrics = make()
    done = Finished(9.0, 1, FinishReason.STOP, 100, 7, 60, 1)
    metrics.observe(
        [scheduled(1.0), FirstToken(3.0, 1), scheduled(4.0, resumed=True), FirstToken(5.0, 1), done]
    )
    assert value(metrics, "belady:request_queue_time_seconds_sum") == 1.5
    assert value(metrics, "belady:request_prefill_time_seconds_sum") == 2
    assert value(metrics, "belady:request_decode_time_seconds_sum") == 6
    assert value(metrics, "belady:request_inference_time_seconds_sum") == 8
    assert value(metrics, "belady:request_prefill_time_seconds_count") == 1
    assert value(metrics, "belady:request_success_total", finished_reason="stop") == 1
    assert value(metrics, "belady:request_generation_tokens_sum") == 7
    assert not metrics._phases._admitted and not metrics._phases._first


def test_a_request_that_never_ran_has_no_phases():
    metrics = make()
    metrics.observe([Finished(9.0, 1, FinishReason.ABORT, 100, 0, 0, 0)])
    assert value(metrics, "belady:request_decode_time_seconds_count") == 0
    assert value(metrics, "belady:request_success_total", finished_reason="abort") == 1


def test_client_side_latencies():
    metrics = make()
    times = metrics.track(10.0)
    times.delta(Delta(0, "", ()), 10.5)
    times.delta(Delta(0, "ab", (1, 2)), 11.0)
    times.delta(Delta(1, "x", (1,)), 11.5)
    times.delta(Delta(0, "cd", (3, 4)), 12.0)
    times.ended(13.0)
    assert value(metrics, "belady:time_to_first_token_seconds_sum") == 1.0
    assert value(metrics, "belady:time_to_first_token_seconds_count") == 1
    assert value(metrics, "belady:inter_token_latency_seconds_count") == 2
    assert value(metrics, "belady:inter_token_latency_seconds_sum") == 1.0
    assert value(metrics, "belady:e2e_request_latency_seconds_sum") == 3.0
    assert value(metrics, "belady:generation_tokens_total") == 5


def test_buckets():
    found = samples(make())
    bounds = {
        float(dict(labels)["le"])
        for (name, labels) in found
        if name == "belady:time_to_first_token_seconds_bucket" and dict(labels)["le"] != "+Inf"
    }
    assert bounds == set(FIRST_TOKEN_BUCKETS)
    assert token_buckets(1000) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def test_two_servers_do_not_mix():
    one, two = make(), make()
    one.observe([scheduled()])
    assert value(two, "belady:prompt_tokens_total") == 0


def test_over_http(tmp_path):
    import asyncio

    import httpx

    from belady.api.app import create_app
    from belady.api.mock import MockEngine

    engine = MockEngine()

    async def main():
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(create_app(engine)), base_url="http://t"
        ) as c:
            usage = []
            for _ in range(2):
                answer = await c.post(
                    "/v1/chat/completions", json={"messages": [{"role": "user", "content": "q"}]}
                )
                usage.append(answer.json()["usage"])
            return usage, (await c.get("/metrics")).text

    usage, text = asyncio.run(main())
    found = {
        s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples if "le" not in s.labels
    }  # fmt: skip
    assert found["belady:prompt_tokens_total"] == sum(u["prompt_tokens"] for u in usage)
    assert found["belady:generation_tokens_total"] == sum(u["completion_tokens"] for u in usage)
    cached = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usage)
    assert cached > 0
    assert found["belady:prefix_cache_hits_total"] == cached
    assert found["belady:e2e_request_latency_seconds_count"] == 2
    assert found["belady:num_requests_running"] == 0
