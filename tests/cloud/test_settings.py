"""Settings of the cloud tier: finite limits, each fact said once, faults named by their setting."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cloud.options import deployment_config, engine_kwargs, environment, ingress_config, llm_config, reserved_cpus
from cloud.settings import AcceleratorSettings, AppArgs, CloudSettings, ModelSettings
from shared.errors import SettingsError
from shared.settings import load


def settings_of(tmp_path: Path, **section: object) -> CloudSettings:
    path = tmp_path / "isthmus.yaml"
    path.write_text(yaml.safe_dump({"cloud": section}))
    return load(CloudSettings, "cloud", path)


def test_default_is_one_model_on_cpu_made_from_the_edge_package(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    assert [model.model_id for model in settings.models] == ["smollm2-135m-instruct"]
    assert settings.models[0].package == "smollm2-135m-instruct"
    assert (settings.host, settings.port, settings.accelerator.kind) == ("127.0.0.1", 8000, "cpu")


@pytest.mark.parametrize(
    ("section", "param", "words"),
    [
        ({"prt": 1}, "cloud.prt", "Did you mean port"),
        ({"models": []}, "cloud.models", ""),
        ({"models": [{"model_id": "m", "source": "s"}] * 2}, "cloud.models", "same model_id"),
        ({"models": [{"model_id": "a b", "source": "s"}]}, "cloud.models.0.model_id", ""),
        (
            {"models": [{"model_id": "m", "source": "s", "engine_kwargs": {"max_model_len": 9}}]},
            "cloud.models.0.engine_kwargs",
            "max_model_len is set by context_tokens",
        ),
        (
            {"models": [{"model_id": "m", "source": "s", "autoscaling": {"min_replicas": 2}}]},
            "cloud.models.0.autoscaling",
            "min_replicas is over max_replicas",
        ),
        (
            {"models": [{"model_id": "m", "source": "s", "autoscaling": {"target_ongoing_requests": 65}}]},
            "cloud.models.0.autoscaling",
            "load could never reach it",
        ),
        ({"accelerator": {"type": "L4"}}, "cloud.accelerator", "only with kind gpu"),
        ({"life": {"drain_s": float("inf")}}, "cloud.life.drain_s", "finite"),
    ],
)
def test_a_fault_names_its_setting(tmp_path: Path, section: dict[str, object], param: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_of(tmp_path, **section)
    assert caught.value.param == param
    assert words in str(caught.value)


def model(**fields: object) -> ModelSettings:
    return ModelSettings.model_validate({"model_id": "org/m.1", "source": "/models/m", **fields})


def test_every_limit_of_serve_is_finite_and_refusals_say_when_to_come_back() -> None:
    args = AppArgs(models=(model(),))
    for config in (deployment_config(args.models[0], args), ingress_config(args)):
        assert 0 < config["max_ongoing_requests"] < 10_000
        assert 0 < config["max_queued_requests"] < 10_000
        assert config["backpressure_config"] == {"status_code": 429, "retry_after_s": 2}
        assert config["health_check_period_s"] == 2
    assert deployment_config(args.models[0], args)["autoscaling_config"]["target_ongoing_requests"] == 16


def test_cpu_options_are_eager_unbound_and_sized_in_bytes() -> None:
    kwargs = engine_kwargs(model(), AcceleratorSettings())
    assert kwargs["enforce_eager"] is True
    assert kwargs["dtype"] == "float32"
    assert kwargs["kv_cache_memory_bytes"] == 512 * 1024 * 1024
    variables = environment(model(threads=3), AcceleratorSettings())
    assert variables["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert variables["OMP_NUM_THREADS"] == "3"
    assert variables["HF_HUB_OFFLINE"] == "1"
    assert variables["TORCHDYNAMO_DISABLE"] == "1"
    assert "TORCHDYNAMO_DISABLE" not in environment(model(enforce_eager=False), AcceleratorSettings())


def test_gpu_options_leave_memory_and_graphs_to_the_engine() -> None:
    accelerator = AcceleratorSettings(kind="gpu", type="L4")
    kwargs = engine_kwargs(model(), accelerator)
    assert kwargs["enforce_eager"] is False
    assert "kv_cache_memory_bytes" not in kwargs
    assert not any(name.startswith(("OMP", "GOMP", "VLLM_CPU")) for name in environment(model(), accelerator))
    config = llm_config(model(), AppArgs(models=(model(),), accelerator=accelerator))
    assert config["accelerator_type"] == "L4"
    assert config["placement_group_config"] == {"bundle_per_worker": {"CPU": 2, "GPU": 1}}


def test_explicit_values_win_and_engine_kwargs_are_added() -> None:
    chosen = model(
        enforce_eager=False,
        dtype="bfloat16",
        kv_cache_bytes=2**30,
        tool_call_parser="hermes",
        engine_kwargs={"seed": 7},
    )
    kwargs = engine_kwargs(chosen, AcceleratorSettings())
    assert kwargs == {
        "max_model_len": 4096,
        "max_num_seqs": 32,
        "dtype": "bfloat16",
        "enforce_eager": False,
        "kv_cache_memory_bytes": 2**30,
        "enable_auto_tool_choice": True,
        "tool_call_parser": "hermes",
        "seed": 7,
    }


def test_a_local_cluster_has_cpus_for_every_replica_at_full_scale() -> None:
    wide = model(threads=3, autoscaling={"max_replicas": 2})
    assert reserved_cpus(AppArgs(models=(wide, model(model_id="b")))) == 3 * 2 + 2 + 1


def test_beyond_loopback_keys_are_needed_and_are_rendered_as_hashes() -> None:
    with pytest.raises(SettingsError, match="set keys"):
        load(CloudSettings, "cloud", host="0.0.0.0")
    key = {"name": "router", "sha256": "a" * 64, "scopes": ["inference", "admin"]}
    settings = load(CloudSettings, "cloud", host="0.0.0.0", keys=[key])
    assert AppArgs.of(settings).model_dump(mode="json")["keys"] == [key | {"scopes": ["admin", "inference"]}]
    with pytest.raises(SettingsError, match="same name"):
        load(CloudSettings, "cloud", keys=[key, key])


def test_adapters_reach_the_engine_with_their_limits() -> None:
    served = model(adapters={"count": 3, "rank_limit": 32})
    kwargs = engine_kwargs(served, AcceleratorSettings())
    assert (kwargs["enable_lora"], kwargs["max_loras"], kwargs["max_cpu_loras"], kwargs["max_lora_rank"]) == (
        True,
        3,
        3,
        32,
    )
    assert "enable_lora" not in engine_kwargs(model(), AcceleratorSettings())


def test_prefix_routing_is_a_switch() -> None:
    plain, prefix = (model(routing=routing) for routing in ("balanced", "prefix"))
    assert "request_router_config" not in deployment_config(plain, AppArgs(models=(plain,)))
    chosen = deployment_config(prefix, AppArgs(models=(prefix,)))["request_router_config"]["request_router_class"]
    assert chosen.endswith("PrefixCacheAffinityRouter")
