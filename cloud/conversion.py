"""Dequantises one GGUF file into a checkpoint that vLLM loads: `python -m cloud.conversion FILE FOLDER`.

A program of its own, because the frameworks it loads would otherwise stay in the memory of the one that serves.
Each line on standard output is one JSON object: `{"step": …}`, and at the end of a failure `{"fault": …}`.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import orjson

from shared.pretokenizer import rules_of_tag

STEPS = ("loading", "writing")
DISK_FULL, UNSUPPORTED = "disk_full", "unsupported"


def convert(source: Path, folder: Path) -> None:
    """Write the weights of `source` as bfloat16 safetensors, with tokenizer and chat template, into `folder`."""
    import torch  # noqa: PLC0415 - heavy, and only the child process needs it
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415

    _say(step="loading")
    place = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**place)
    # Without dequantize the weights stay packed, and would be written so.
    model = AutoModelForCausalLM.from_pretrained(
        **place, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    _say(step="writing")
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    restore_pre_tokenizer(source, folder / "tokenizer.json")


def restore_pre_tokenizer(source: Path, document: Path) -> None:
    """Write the rules that the file's tag stands for: the conversion puts those of GPT-2 in the place of any other."""
    from gguf import GGUFReader  # noqa: PLC0415 - as above

    tag = GGUFReader(source).fields.get("tokenizer.ggml.pre")
    rules = rules_of_tag(str(tag.contents()) if tag is not None else None)
    if rules is not None:
        document.write_bytes(orjson.dumps(orjson.loads(document.read_bytes()) | {"pre_tokenizer": rules}))


def main(arguments: list[str]) -> int:
    """Convert; the exit code is 0 only when the folder is whole."""
    source, folder = (Path(argument) for argument in arguments)
    try:
        convert(source, folder)
    except (ValueError, NotImplementedError, KeyError):
        _say(fault=UNSUPPORTED)
        return 1
    except Exception as error:
        # safetensors reports a full disk as its own error type, with the system's words in it.
        full = getattr(error, "errno", None) == errno.ENOSPC or "os error 28" in str(error)
        if not full:
            raise
        _say(fault=DISK_FULL)
        return 1
    return 0


def _say(**fields: str) -> None:
    sys.stdout.write(orjson.dumps(fields).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
