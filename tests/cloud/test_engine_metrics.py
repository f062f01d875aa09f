"""vLLM's metrics of several replicas as one text that Prometheus takes."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from cloud.engine_metrics import merged, of_vllm

ONE = """# HELP python_info Python.
# TYPE python_info gauge
python_info{version="3"} 1.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
# HELP vllm:prompt_tokens_total Prefill tokens.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 40.0
# HELP vllm:e2e_request_latency_seconds Latency.
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.3",model_name="m"} 1.0
vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} 1.0
vllm:odd 3.0
"""


def test_what_is_not_vllms_stays_behind() -> None:
    kept = of_vllm(ONE)
    assert "python_info" not in kept
    assert kept.splitlines() == [line for line in ONE.splitlines() if "vllm:" in line]
    assert of_vllm("") == ""


def test_replicas_share_families_and_keep_their_samples_apart() -> None:
    text = merged({"a1": of_vllm(ONE), "b2": of_vllm(ONE).replace(" 2.0", " 5.0")})
    assert text.count("# TYPE vllm:num_requests_running gauge") == 1
    families = {family.name: family for family in text_string_to_metric_families(text)}
    running = {sample.labels["replica"]: sample.value for sample in families["vllm:num_requests_running"].samples}
    assert running == {"a1": 2.0, "b2": 5.0}
    first = families["vllm:num_requests_running"].samples[0]
    assert first.labels == {"replica": "a1", "engine": "0", "model_name": "m"}
    assert 'vllm:odd{replica="a1"} 3.0' in text


def test_one_replica_is_as_it_was_but_for_its_name() -> None:
    assert merged({"a1": of_vllm(ONE)}).replace('replica="a1",', "").replace('{replica="a1"}', "") == of_vllm(ONE)
    assert merged({}) == ""
