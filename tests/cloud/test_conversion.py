"""What a conversion writes beside the weights: the rules that cut text, as the GGUF file's tag means them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloud.conversion import restore_pre_tokenizer
from shared.pretokenizer import family_of_rules, rules_of_tag
from shared.testing.models import write_gguf


@pytest.mark.parametrize(
    ("tag", "expected"), [("smollm", "smollm"), ("starcoder", "smollm"), ("llama-bpe", "llama-bpe"), ("mine", "gpt-2")]
)
def test_tk_01_the_checkpoint_cuts_text_as_the_file_it_came_from(tmp_path: Path, tag: str, expected: str) -> None:
    """The conversion leaves the rules of GPT-2; those of a tag that is not known are left as they are."""
    source = write_gguf(tmp_path / "m.gguf", strings={"tokenizer.ggml.pre": tag})
    document = tmp_path / "tokenizer.json"
    document.write_text(json.dumps({"model": {"vocab": {"a": 0}}, "pre_tokenizer": rules_of_tag("gpt-2")}))
    restore_pre_tokenizer(source, document)
    written = json.loads(document.read_text())
    assert family_of_rules(written["pre_tokenizer"]) == expected
    assert written["model"] == {"vocab": {"a": 0}}
