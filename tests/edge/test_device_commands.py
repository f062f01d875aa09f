"""`isthmus edge devices` and `isthmus edge schedule`: this device, others from profiles, headers alone, bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge.devices import benchmark, calibrated
from edge.devices.benchmark import Benchmark, machine_identity
from edge.devices.calibrated import Calibrated
from edge.devices.probe import probe
from edge.devices.profile import measured
from edge.devices.unit import Efficiency
from edge.packages.package import Package
from edge.runtime.forecast import applied, engine_version
from edge.runtime.plan import PlanRequest
from edge.runtime.prediction import Compared, Row
from shared.cli import main
from shared.settings import HOME_VARIABLE
from tests.edge.test_plan_command import header_only

MODEL = "smollm2-135m-instruct"
TYPES = ("Q4_1", "Q8_0")
WITHOUT_ATTENTION = """
name: board
memory: {available: 4GiB}
units:
  - {name: cpu, kind: cpu, cores: 4, flops_per_s: 100e9, bytes_per_s: 10e9}
  - name: npu
    kind: npu
    flops_per_s: 10e12
    bytes_per_s: 100e9
    link_bytes_per_s: 10e9
    handover_s: 0.00001
    delegation: {kind: per_operator, operators: [norm, qkv, attention_output, feed_forward, head]}
"""


def peaks() -> Benchmark:
    """Peaks as some machine has them, kept as this one's, so that no test waits for a measurement."""
    device = probe()
    rates = {"matmul": {512: 60e9}, "copy": {1 << 20: 12e9}, "triad": {1 << 20: 11e9}}
    return Benchmark.model_validate({"identity": machine_identity(device), "by_threads": {1: rates, 2: rates}})


@pytest.fixture
def run(
    tmp_path: Path, installed_model: Package, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """A function that runs `isthmus edge …` and returns exit code, standard output, standard error."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    benchmark.keep(tmp_path / "home" / "devices", peaks())
    config = tmp_path / "isthmus.yaml"
    store = installed_model.folder.parents[2]
    config.write_text(json.dumps({"edge": {"models_dir": str(store), "run_dir": str(tmp_path / "run")}}))

    def call(command: str, *arguments: str) -> tuple[int, str, str]:
        settings = ["--config", str(config)] if command == "schedule" else []
        with pytest.raises(SystemExit) as ended:
            main(["edge", command, *arguments, *settings])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


def answer_of(run: Any, *arguments: str) -> dict[str, Any]:
    code, out, err = run(*arguments, "--json")
    assert code == 0, err
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_devices_show_units_memory_power_and_peaks(run: Any) -> None:
    answer = answer_of(run, "devices")
    assert {report["name"] for report in answer["runtimes"]} == {"llama.cpp", "onnxruntime", "executorch"}
    assert answer["benchmark"]["1"]["flops_per_s"] == 60e9
    assert answer["benchmark"]["2"]["bytes_per_s"] == 12e9
    assert answer["power"]["source"] in ("mains", "battery", "unknown")
    code, out, _ = run("devices")
    assert code == 0
    for word in ("processor", "cores", "llama.cpp", "GFLOP/s", "copy", "triad"):
        assert word in out


def test_devices_without_a_benchmark_say_how_to_get_one(run: Any, tmp_path: Path) -> None:
    for kept in (tmp_path / "home" / "devices").iterdir():
        kept.unlink()
    assert answer_of(run, "devices")["benchmark"] is None
    assert "--bench" in run("devices")[1]


def test_bench_measures_and_keeps(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "_REPETITIONS", 1)
    before = answer_of(run, "devices")["benchmark"]
    measured_now = answer_of(run, "devices", "--bench")["benchmark"]
    assert measured_now != before
    assert answer_of(run, "devices")["benchmark"] == measured_now


def test_shipped_profiles_are_listed_and_shown(run: Any) -> None:
    listed = answer_of(run, "devices", "--profiles")
    assert set(listed) >= {"raspberry-pi-5", "jetson-orin-nano"}
    code, out, _ = run("devices", "--profile", "raspberry-pi-5")
    assert code == 0
    assert "product brief" in out
    assert answer_of(run, "devices", "--profile", "raspberry-pi-5")["units"][0]["cores"] == 4


def test_schedule_of_this_device(run: Any) -> None:
    answer = answer_of(run, "schedule", MODEL, "--context", "512")
    assert (answer["units"], answer["reason"], answer["calibrated"]) == (["cpu"], "only_unit", False)
    assert len(answer["operators"]) == 30 * 7 + 3
    assert answer["decode"]["tokens_per_s"] == pytest.approx(1 / sum(o["decode_s"] for o in answer["operators"]))
    assert answer["decode"]["bound"] == "memory"
    assert answer["prefill"]["bound"] == "compute"
    assert answer["engine"]["n_gpu_layers"] == 0
    code, out, _ = run("schedule", MODEL)
    assert code == 0
    for word in ("Not calibrated", "feed_forward", "attention", "prefill", "decode", "tax", "memory", "n_gpu_layers"):
        assert word in out
    assert out.count("attention_output") == 1
    assert run("schedule", MODEL, "--operators")[1].count("attention_output") == 30


def test_what_was_calibrated_here_is_used(run: Any, tmp_path: Path) -> None:
    plain = answer_of(run, "schedule", MODEL, "--threads", "1")
    keep_calibration(tmp_path / "home" / "devices", {1: 0.1})
    answer = answer_of(run, "schedule", MODEL, "--threads", "1")
    assert answer["calibrated"]
    assert answer["decode"]["tokens_per_s"] < 0.9 * plain["decode"]["tokens_per_s"]
    assert answer["engine"]["threads"] == 1
    assert "Not calibrated" not in run("schedule", MODEL, "--threads", "1")[1]


def keep_calibration(folder: Path, attention_by_threads: dict[int, float]) -> None:
    device = probe()
    plain = measured(device, peaks(), 1).units[0]
    units = {
        threads: plain.model_copy(update={"efficiency": Efficiency(attention_decode_flops=share)})
        for threads, share in attention_by_threads.items()
    }
    calibrated.keep(
        folder,
        Calibrated(
            identity=machine_identity(device),
            engine=engine_version(),
            weight_types=TYPES,
            kv_type="f16",
            by_threads=units,
        ),
    )


def test_the_engine_is_planned_with_the_threads_that_were_measured_fastest(
    installed_model: Package, tmp_path: Path
) -> None:
    device = replace(probe(), cores_usable=4)
    assert applied(PlanRequest(), installed_model, device, tmp_path) == PlanRequest()
    known = peaks().model_copy(update={"identity": machine_identity(device)})
    benchmark.keep(tmp_path, known)
    assert applied(PlanRequest(), installed_model, device, tmp_path) == PlanRequest()
    unit = measured(device, known, 1).units[0]
    shares = {1: 0.3, 2: 0.9, 3: 0.5, 4: 1.0}
    entry = Calibrated(
        identity=machine_identity(device),
        engine=engine_version(),
        weight_types=TYPES,
        kv_type="f16",
        by_threads={
            threads: unit.model_copy(update={"efficiency": Efficiency(product_bytes=share, product_flops=share)})
            for threads, share in shares.items()
        },
    )
    calibrated.keep(tmp_path, entry)
    # Four would be fastest, but one core is left to the rest of the machine while decoding.
    chosen = applied(PlanRequest(), installed_model, device, tmp_path)
    assert (chosen.threads, chosen.threads_batch) == (2, 4)
    asked = applied(PlanRequest(threads=1, threads_batch=3), installed_model, device, tmp_path)
    assert (asked.threads, asked.threads_batch) == (1, 3)


@pytest.mark.parametrize(
    "profile", ["raspberry-pi-5", "jetson-orin-nano", "snapdragon-8-gen-3-phone", "laptop-ryzen-7840u"]
)
def test_schedule_of_the_shipped_devices(run: Any, profile: str) -> None:
    answer = answer_of(run, "schedule", MODEL, "--profile", profile)
    assert answer["decode"]["tokens_per_s"] > 1
    assert answer["tax_ratio"] <= 0.15
    if profile in ("jetson-orin-nano", "laptop-ryzen-7840u"):
        assert answer["engine"]["n_gpu_layers"] >= 30
        assert answer["engine"]["draft_device"] == "gpu"
    if profile == "snapdragon-8-gen-3-phone":  # neither GPU nor NPU has kernels for Q4_1
        assert answer["units"] == ["cpu"]
        assert {refused["why"] for refused in answer["refused"]} >= {"weight_type_not_supported"}


def test_a_plan_over_budget_says_why_and_moves_whole(run: Any, tmp_path: Path) -> None:
    profile = tmp_path / "board.yaml"
    profile.write_text(WITHOUT_ATTENTION)
    answer = answer_of(run, "schedule", MODEL, "--profile", str(profile), "--context", "4096")
    assert (answer["reason"], answer["units"]) == ("fallback_over_budget", ["cpu"])
    assert answer["given_up"]["tax_ratio"] > 0.15
    code, out, _ = run("schedule", MODEL, "--profile", str(profile), "--context", "4096")
    assert code == 0
    assert "the whole graph moves to cpu" in out
    assert "npu does not take embedding, rope, attention: operator_not_supported" in out
    lenient = answer_of(run, "schedule", MODEL, "--profile", str(profile), "--context", "4096", "--tax-budget", "1")
    assert lenient["units"] == ["cpu", "npu"]
    assert lenient["tax_ratio"] == pytest.approx(answer["given_up"]["tax_ratio"])
    assert not lenient["engine"]["obeyed"]


@pytest.mark.parametrize("tensors", [True, False])
def test_a_header_suffices(run: Any, tmp_path: Path, tensors: bool) -> None:
    path = header_only(tmp_path / "qwen3.gguf", tensors=tensors)
    answer = answer_of(run, "schedule", str(path), "--profile", "laptop-ryzen-7840u", "--context", "2048")
    assert answer["architecture"] == "qwen3"
    assert len(answer["operators"]) == 28 * 7 + 3
    # 0.6 G parameters of 16 bits and the cache, over 89.6 GB/s.
    assert answer["decode"]["tokens_per_s"] == pytest.approx(89.6e9 / (2 * 596e6 + 2048 * 114688), rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["absent"], "not installed"),
        (["/absent/model.gguf"], "cannot be read"),
        (["--profile", "commodore-64"], "raspberry-pi-5"),
        (["--profile", "absent.yaml"], "absent.yaml"),
        (["--context", "0"], "context"),
        (["--context", "8193"], "8192"),
        (["--context", "many"], "context"),
        (["--tax-budget", "2"], "tax-budget"),
        (["--tax-budget", "nan"], "tax"),
        (["--threads", "0"], "threads"),
        (["--threads", "1", "--profile", "raspberry-pi-5"], "threads"),
        (["--measure", "--profile", "raspberry-pi-5"], "measure"),
    ],
)
def test_bad_input_is_one_line_that_names_it(run: Any, arguments: list[str], word: str) -> None:
    code, out, err = run("schedule", *arguments)
    assert code in (1, 2)
    assert out == ""
    assert word in err
    assert "Traceback" not in err


def test_a_profile_without_units_cannot_be_scheduled(run: Any, tmp_path: Path) -> None:
    profile = tmp_path / "board.yaml"
    profile.write_text("name: board\nmemory: {available: 4GiB}\n")
    code, _, err = run("schedule", "--profile", str(profile))
    assert code == 2
    assert "no units" in err


def test_bench_of_another_device_is_refused(run: Any) -> None:
    code, _, err = run("devices", "--bench", "--profile", "raspberry-pi-5")
    assert code == 2
    assert "bench" in err


@pytest.mark.engine
@pytest.mark.slow
def test_measure_compares_keeps_and_reports(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real engine, at contexts that take a moment; speed itself is for the benchmark, not for a test."""
    from edge import schedule_console
    from edge.runtime import prediction, speed

    monkeypatch.setattr(schedule_console, "CONTEXTS_TOKENS", (64, 100_000))
    monkeypatch.setattr(schedule_console, "_MEASURED_THREADS", (1,))
    monkeypatch.setattr(prediction, "LONG_TOKENS", 130)
    monkeypatch.setattr(prediction, "_REPETITIONS_TOKENS", 1)
    monkeypatch.setattr(speed, "_DECODE_TOKENS", 6)
    monkeypatch.setattr(speed, "_DECODE_REPETITIONS", 1)
    code, out, err = run("schedule", MODEL, "--measure", "--json")
    answer = json.loads(out)
    assert err == ""
    # What the model was not trained for is left out.
    assert [(row["context_tokens"], row["phase"]) for row in answer["rows"]] == [(64, "prefill"), (64, "decode")]
    assert all(row["measured_tokens_per_s"] > 0 and row["ratio"] > 0 for row in answer["rows"])
    assert code == (0 if answer["within"] else 1)
    assert set(answer["shares"]) == {"1"}
    assert answer_of(run, "schedule", MODEL, "--threads", "1")["calibrated"]


def test_a_cell_beyond_a_quarter_is_told_by_the_exit_code(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from edge import schedule_console

    unit = measured(probe(), peaks(), 1).units[0].model_copy(update={"efficiency": Efficiency()})
    rows = [Row(1, 128, "prefill", 124.0, 100.0, 99.0), Row(1, 128, "decode", 70.0, 100.0, 99.0)]

    async def compare(*_: object) -> Any:
        for each in answers:
            yield each

    monkeypatch.setattr(schedule_console, "compare", compare)
    for shown, code in ((rows[:1], 0), (rows, 1)):
        answers = [Compared(unit, 1, tuple(shown))]
        ended, out, _ = run("schedule", MODEL, "--measure")
        assert ended == code
        assert ("beyond 25 %" in out) == bool(code)
