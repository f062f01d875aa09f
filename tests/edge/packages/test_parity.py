"""TK-01: packages of one model that turn text into tokens differently are reported, by what differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.packages.library import Library
from edge.packages.package import Package
from edge.packages.parity import check_parity, identity
from shared.errors import TokenizerMismatch
from shared.pretokenizer import family_of_rules, rules_of_tag
from shared.testing.models import write_gguf
from shared.tokenizer import identity_of

TOKENS = ["<unk>", "<s>", "</s>", *(f"token {number}" for number in range(61)), "Ġé"]
TEMPLATE = "{{ messages }}"
MERGES = ["t o", "to k"]
SMOLLM_RULES = rules_of_tag("smollm")

Checkpoint = Callable[..., Path]


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """An installed model with a vocabulary of its own."""
    path = write_gguf(
        tmp_path / "m.gguf",
        tokens=TOKENS,
        strings={"tokenizer.chat_template": TEMPLATE},
        arrays={"tokenizer.ggml.merges": MERGES},
        switches={"tokenizer.ggml.add_bos_token": False},
        numbers={"tokenizer.ggml.unknown_token_id": 0},
    )
    return Library(tmp_path / "models").import_path(path, "m")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A function that writes the tokenizer of a cloud checkpoint of `m`, or of another package."""

    def write(
        tokens: list[str] = TOKENS,
        *,
        eos: str = "</s>",
        template: str = TEMPLATE,
        name: str = "m",
        apart: bool = True,
        rules: object = SMOLLM_RULES,
        merges: object = MERGES,
        processor: object = None,
        **stated: object,
    ) -> Path:
        folder = tmp_path / "checkpoints" / f"{name}-0123"
        folder.mkdir(parents=True, exist_ok=True)
        manifest = {"version": 1, "package": name, "digest": "sha256:" + "0" * 64, "files": []}
        (folder / "isthmus-checkpoint.json").write_text(json.dumps(manifest))
        added = [{"id": number, "content": token, "special": True} for number, token in enumerate(tokens[:3])]
        vocabulary = {token: number for number, token in enumerate(tokens) if number >= 3}
        (folder / "tokenizer.json").write_text(
            json.dumps(
                {
                    "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
                    "added_tokens": added,
                    "pre_tokenizer": rules,
                    "post_processor": processor,
                }
            )
        )
        config: dict[str, object] = {"bos_token": "<s>", "eos_token": {"content": eos}, "unk_token": "<unk>", **stated}
        if apart:
            (folder / "chat_template.jinja").write_text(template)
        else:
            config["chat_template"] = template
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return tmp_path / "checkpoints"

    return write


@pytest.mark.parametrize("apart", [True, False])
def test_one_tokenizer_in_two_forms_is_one(package: Package, checkpoint: Checkpoint, apart: bool) -> None:
    root = checkpoint(apart=apart)
    check_parity(package, root)
    other = identity_of(root / "m-0123")
    assert other is not None
    assert other.fingerprint == identity(package.manifest.model.tokenizer).fingerprint


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokens": [*TOKENS[:-1], "Ġe"]}, "the token list"),
        ({"tokens": [*TOKENS, "more"]}, "65 tokens against 66"),
        ({"eos": "<unk>"}, "eos is 2 against 0"),
        ({"template": TEMPLATE + " "}, "the chat template"),
        ({"rules": rules_of_tag("gpt-2")}, "the pre-tokenizer"),
        ({"rules": rules_of_tag("qwen2")}, "the pre-tokenizer"),
        ({"rules": {"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, {"type": "ByteLevel"}]}}, "other"),
        ({"merges": MERGES[::-1]}, "the merges"),
    ],
)
def test_tk_01_what_differs_is_named(
    package: Package, checkpoint: Checkpoint, change: dict[str, object], words: str
) -> None:
    root = checkpoint(**change)
    with pytest.raises(TokenizerMismatch, match=words) as caught:
        check_parity(package, root)
    assert caught.value.exit_code == 22
    other = identity_of(root / "m-0123")
    assert other is not None
    assert other.fingerprint != identity(package.manifest.model.tokenizer).fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"unk_token": "</s>"},
        {"add_bos_token": True},
        {"processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {}}]}},
    ],
)
def test_tk_01_other_ids_at_the_edges_of_a_text_are_reported(
    package: Package, checkpoint: Checkpoint, change: dict[str, object]
) -> None:
    """They change the count of a bare prompt by one; conversations, which bring their own, are not affected."""
    root = checkpoint(**change)
    with pytest.raises(TokenizerMismatch, match=r"bos is added \(no against yes\)|unknown is 0 against 2"):
        check_parity(package, root)


@pytest.mark.parametrize("merges", [MERGES, [each.split() for each in MERGES]])
def test_merges_in_either_form_are_the_same(package: Package, checkpoint: Checkpoint, merges: object) -> None:
    check_parity(package, checkpoint(merges=merges))


def test_a_tag_of_the_same_rules_is_no_mismatch(tmp_path: Path, checkpoint: Checkpoint) -> None:
    """`starcoder` and `smollm` cut text alike; `default` is what the engine falls back to, which is neither."""
    library = Library(tmp_path / "models")
    for tag, same in (("starcoder", True), ("smollm", True), ("default", False), ("gpt-2", False), ("qwen2", False)):
        strings = {"tokenizer.chat_template": TEMPLATE, "tokenizer.ggml.pre": tag}
        package = library.import_path(write_gguf(tmp_path / f"{tag}.gguf", tokens=TOKENS, strings=strings), "m")
        if same:
            check_parity(package, checkpoint())
        else:
            with pytest.raises(TokenizerMismatch, match=f"pre-tokenizer \\({tag} against smollm\\)"):
                check_parity(package, checkpoint())


def test_checkpoints_of_other_models_and_unreadable_ones_are_left_alone(
    package: Package, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    check_parity(package, tmp_path / "absent")
    checkpoint(template="other", name="n")
    root = checkpoint()
    for content in (
        "",
        "{",
        "[]",
        '{"model": {}}',
        '{"model": {"vocab": {"a": 5}}}',
        '{"model": {"vocab": {"a": "b"}}}',
    ):
        (root / "m-0123" / "tokenizer.json").write_text(content)
        check_parity(package, root)
        assert identity_of(root / "m-0123") is None
    (root / "m-0123" / "isthmus-checkpoint.json").write_text("{}")
    check_parity(package, root)


def test_tk_01_a_pre_tokenizer_of_another_family_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two headers that differ in `tokenizer.ggml.pre` alone, of a vocabulary whose family is known."""
    from edge.packages import model_file

    library = Library(tmp_path / "models")
    right = library.import_path(write_gguf(tmp_path / "a.gguf", tokens=TOKENS), "right")
    monkeypatch.setattr(model_file, "_PRE_BY_TOKENS", {right.manifest.model.tokenizer.tokens_sha256: "smollm"})
    wrong = write_gguf(tmp_path / "b.gguf", tokens=TOKENS, strings={"tokenizer.ggml.pre": "default"})
    package = library.import_path(wrong, "wrong")
    check_parity(right, tmp_path / "absent")
    with pytest.raises(TokenizerMismatch, match="pre-tokenizer tag is default"):
        check_parity(package, tmp_path / "absent")


@pytest.mark.parametrize("tag", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_rules_and_tags_are_two_forms_of_one_thing(tag: str) -> None:
    """The rules that are written into a checkpoint are read back as the tag, and cut text as the library does."""
    tokenizers = pytest.importorskip("tokenizers")
    rules = rules_of_tag(tag)
    assert rules is not None
    assert family_of_rules(rules) == tag
    document = {"model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer": rules, "added_tokens": []}
    cut = tokenizers.Tokenizer.from_str(json.dumps({"version": "1.0", **document})).pre_tokenizer
    pieces = [piece for piece, _ in cut.pre_tokenize_str("in 2024")]
    digits = {"gpt-2": ["Ġ2024"], "smollm": ["2", "0", "2", "4"], "llama-bpe": ["202", "4"], "qwen2": list("2024")}
    assert [piece for piece in pieces if any(letter.isdigit() for letter in piece)] == digits[tag]


@pytest.mark.parametrize("rules", [None, "ByteLevel", {}, {"type": "Metaspace"}, {"type": "Sequence"}, {"type": 3}])
def test_rules_of_other_tokenizers_mean_nothing_here(rules: object) -> None:
    assert family_of_rules(rules) is None
