"""`isthmus edge plan`: packages, header-only files, other devices, and refusals with their numbers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from edge.packages.package import Package
from shared.cli import main

QWEN3 = {
    "block_count": 28,
    "context_length": 40960,
    "embedding_length": 1024,
    "feed_forward_length": 3072,
    "attention.head_count": 16,
    "attention.head_count_kv": 8,
    "attention.key_length": 128,
    "attention.value_length": 128,
    "vocab_size": 151936,
}
LAYER = {
    "attn_norm": (1024,),
    "attn_q": (2048, 1024),
    "attn_k": (1024, 1024),
    "attn_v": (1024, 1024),
    "attn_output": (1024, 2048),
    "attn_q_norm": (128,),
    "attn_k_norm": (128,),
    "ffn_norm": (1024,),
    "ffn_gate": (3072, 1024),
    "ffn_up": (3072, 1024),
    "ffn_down": (1024, 3072),
}


def header_only(path: Path, architecture: str = "qwen3", *, tensors: bool = True, **keys: int) -> Path:
    """A GGUF file of Qwen3-0.6B that ends with its header: geometry and tensor descriptions, no weights."""
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in {**QWEN3, **{key.replace("__", "."): value for key, value in keys.items()}}.items():
        writer.add_uint32(f"{architecture}.{name}", value)
    shapes = {"token_embd.weight": (151936, 1024)}
    shapes |= {f"blk.{layer}.{name}.weight": shape for layer in range(28) for name, shape in LAYER.items()}
    shapes["output_norm.weight"] = (1024,)
    for name, shape in shapes.items() if tensors else ():
        writer.add_tensor_info(name, shape, np.dtype(np.float16), 2 * int(np.prod(shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return path


@pytest.fixture
def run(tmp_path: Path, installed_model: Package, capsys: pytest.CaptureFixture[str]) -> Any:
    """A function that runs `isthmus edge plan` and returns exit code, standard output, standard error."""
    config = tmp_path / "isthmus.yaml"
    store = installed_model.folder.parents[2]
    config.write_text(json.dumps({"edge": {"models_dir": str(store), "run_dir": str(tmp_path / "run")}}))

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["edge", "plan", *arguments, "--config", str(config)])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


def plan_of(run: Any, *arguments: str) -> dict[str, Any]:
    code, out, err = run(*arguments, "--json")
    assert code == 0, err
    answer: dict[str, Any] = json.loads(out)
    return answer


@pytest.mark.parametrize("whole", [True, False])
def test_header_only_qwen3_has_its_published_numbers(run: Any, tmp_path: Path, whole: bool) -> None:
    path = header_only(tmp_path / "qwen3.gguf")
    if whole:  # sparse: the right size, no bytes on the disk
        answer = plan_of(run, str(path), "--memory", "8GiB")
        os.truncate(path, answer["lines"]["weights_bytes"])
    answer = plan_of(run, str(path), "--memory", "8GiB")
    assert answer["parameters"] == {
        "embedding": 155_582_464,
        "layer": 15_730_944,
        "layers": 440_466_432,
        "head": 0,
        "other": 1024,
        "tied": True,
        "total": 596_049_920,
    }
    assert answer["capacity"][0]["bytes_per_token"] == 114_688
    assert answer["context_tokens"] == 40960
    assert answer["lines"]["kv_bytes"] == 4_697_620_480  # KV-01 (b)
    assert answer["findings"] == ([] if whole else ["weights_absent"])
    assert sum(answer["lines"].values()) == answer["total_bytes"] <= 8 << 30


def test_a_header_without_tensors_is_planned_upwards_and_says_so(run: Any, tmp_path: Path) -> None:
    described = plan_of(run, str(header_only(tmp_path / "a.gguf")), "--memory", "8GiB")
    bare = plan_of(run, str(header_only(tmp_path / "b.gguf", tensors=False)), "--memory", "8GiB")
    assert bare["findings"] == ["weights_estimated", "weights_absent"]
    assert bare["parameters"] == described["parameters"]
    assert bare["lines"]["weights_bytes"] >= described["lines"]["weights_bytes"]


def test_an_unknown_architecture_is_planned_in_full_and_flagged(run: Any, tmp_path: Path) -> None:
    path = header_only(tmp_path / "new.gguf", "brand-new", attention__sliding_window=512)
    answer = plan_of(run, str(path), "--memory", "8GiB")
    assert answer["findings"][:2] == ["unknown_architecture_in_full", "sliding_window_in_full"]
    assert answer["lines"]["kv_bytes"] == 4_697_620_480
    code, out, _ = run(str(path), "--memory", "8GiB")
    assert code == 0
    assert "No engine here runs this architecture" in out


def test_the_default_model_in_one_gib(run: Any) -> None:
    answer = plan_of(run, "smollm2-135m-instruct", "--memory", "1GiB", "--slots", "2")
    assert (answer["context_tokens"], answer["slots"]) == (8192, 2)
    assert answer["lines"]["kv_bytes"] == 2 * 180 << 20
    assert {name: line["crossed"] for name, line in answer["red_lines"].items()} == {
        "total": False,
        "context": False,
        "pages": False,
    }
    assert [row["loading"] for row in answer["loading"]] == ["mmap", "lock", "preload", "prefetch"]
    assert [row["used"] for row in answer["loading"]] == [True, False, False, False]
    code, out, _ = run("smollm2-135m-instruct", "--memory", "1GiB", "--slots", "2")
    assert code == 0
    for word in ("weights", "KV cache", "reserve", "total", "context", "pages", "q8_0", "q4_0", "prefetch"):
        assert word in out


def test_draft_and_adapters_are_lines_of_their_own(run: Any, tmp_path: Path) -> None:
    path = str(header_only(tmp_path / "model.gguf"))
    plain = plan_of(run, path, "--memory", "8GiB", "--context", "4096")
    rich = plan_of(run, path, "--memory", "8GiB", "--context", "4096", "--draft", path, "--adapters", "3")
    assert (rich["draft"], rich["adapters"]) == ("model", 3)
    added = rich["lines"]["draft_bytes"] + rich["lines"]["adapters_bytes"]
    assert rich["total_bytes"] - plain["total_bytes"] == added
    assert rich["lines"]["draft_bytes"] > plain["lines"]["weights_bytes"] + plain["lines"]["kv_bytes"]


def test_a_profile_describes_another_device(run: Any, tmp_path: Path) -> None:
    profile = tmp_path / "board.yaml"
    profile.write_text("name: board\nmemory: {available: 600MiB, page: 16KiB}\nstorage: {bytes_per_s: 20000000}\n")
    answer = plan_of(run, "smollm2-135m-instruct", "--profile", str(profile))
    assert answer["device"] == {
        "name": "board",
        "memory_bytes": 600 << 20,
        "page_bytes": 16384,
        "memory_bytes_per_s": 10e9,
        "storage_bytes_per_s": 20e6,
    }
    assert answer["loading"][0]["first_token_s"] > 98362432 / 20e6
    assert answer["pages"]["count"] == -(-98362432 // 16384)


def test_kv_03_too_little_memory_is_refused_with_needed_and_free_bytes(run: Any) -> None:
    code, out, err = run("smollm2-135m-instruct", "--memory", "64MiB")
    assert (code, out) == (2, "")
    assert str(64 << 20) in err
    assert "2048 tokens" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--memory", "lots"], "memory"),
        (["--memory", "0"], "memory"),
        (["--slots", "0"], "slots"),
        (["--slots", "65"], "slots"),
        (["--context", "9000", "--memory", "4GiB"], "8192"),
        (["--context", "1"], "context"),
        (["--kv-type", "q5_1"], "kv_type"),
        (["--adapters", "-1", "--memory", "4GiB"], "adapters"),
        (["--draft", "absent"], "not installed"),
        (["--profile", "absent.yaml"], "absent.yaml"),
    ],
)
def test_bad_input_is_one_line_that_names_it(run: Any, arguments: list[str], word: str) -> None:
    code, out, err = run("smollm2-135m-instruct", *arguments)
    assert code in (1, 2)
    assert out == ""
    assert word in err
    assert "Traceback" not in err


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model" * 100])
def test_a_file_that_is_no_model_is_refused(run: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    code, out, err = run(str(path))
    assert code not in (0, 70)
    assert out == ""
    assert err.count("\n") == 1


def test_a_draft_with_another_vocabulary_is_refused(run: Any, tmp_path: Path) -> None:
    path = str(header_only(tmp_path / "model.gguf"))
    code, _, err = run("smollm2-135m-instruct", "--memory", "8GiB", "--draft", path)
    assert code == 2
    assert "151936" in err
    assert "49152" in err


def test_a_recurrent_model_is_refused_by_name(run: Any, tmp_path: Path) -> None:
    code, _, err = run(str(header_only(tmp_path / "m.gguf", "mamba2")))
    assert code not in (0, 70)
    assert "mamba2" in err
