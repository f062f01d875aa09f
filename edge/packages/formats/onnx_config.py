"""The keys of `genai_config.json` that a package may set; every other is refused by name.

The runtime honours keys that load native code (`custom_ops_library`), read files outside the package (`..` in a file
name) or start other execution providers, and ignores what it does not know. So the file is read here, and the engine
gets one that is written anew from these fields alone.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

CONFIG_FILE = "genai_config.json"
_FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,100}(\.[A-Za-z0-9_-]+)*\.onnx$")]
_TensorName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}$")]
_Pattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./-]{0,100}%d[A-Za-z0-9_./-]{0,100}$")]
_Token = Annotated[int, Field(ge=0, lt=1 << 22)]
_ARCHITECTURES = frozenset({"llama", "qwen2", "qwen3", "phi", "phi3", "gemma", "gemma2", "mistral", "smollm3", "olmo"})


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SessionOptions(_Closed):
    """Only what changes nothing: threads and providers are the engine's to choose."""

    log_id: str | None = Field(default=None, max_length=64)
    provider_options: tuple[()] | list[dict[str, dict[str, str]]] = ()

    @model_validator(mode="after")
    def _processor_alone(self) -> SessionOptions:
        if any(set(each) != {"cpu"} or each["cpu"] for each in self.provider_options):
            raise ValueError("provider_options other than an empty list are not allowed")
        return self


class Inputs(_Closed):
    """Names of the graph's inputs."""

    input_ids: _TensorName
    attention_mask: _TensorName | None = None
    position_ids: _TensorName | None = None
    past_key_names: _Pattern
    past_value_names: _Pattern


class Outputs(_Closed):
    """Names of the graph's outputs."""

    logits: _TensorName
    present_key_names: _Pattern
    present_value_names: _Pattern


class Decoder(_Closed):
    """The one graph of a text model."""

    session_options: SessionOptions
    filename: _FileName
    head_size: int = Field(ge=1, le=8192)
    hidden_size: int = Field(ge=1, le=1 << 18)
    inputs: Inputs
    outputs: Outputs
    num_attention_heads: int = Field(ge=1, le=4096)
    num_hidden_layers: int = Field(ge=1, le=1024)
    num_key_value_heads: int = Field(ge=1, le=4096)


class Model(_Closed):
    """The model as a whole."""

    type: str = Field(max_length=32)
    bos_token_id: _Token | None = None
    eos_token_id: _Token | list[_Token]
    pad_token_id: _Token | None = None
    context_length: int = Field(ge=1, le=1 << 24)
    vocab_size: int = Field(ge=1, le=1 << 22)
    decoder: Decoder

    @model_validator(mode="after")
    def _consistent(self) -> Model:
        if self.type not in _ARCHITECTURES:
            raise ValueError(f"type must be one of {', '.join(sorted(_ARCHITECTURES))}")
        if self.decoder.num_attention_heads % self.decoder.num_key_value_heads:
            raise ValueError("num_key_value_heads does not divide num_attention_heads")
        if self.eos_token_id == []:
            raise ValueError("eos_token_id names no token")
        return self

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        stated = self.eos_token_id
        return (stated,) if isinstance(stated, int) else tuple(stated)


class Search(_Closed):
    """Defaults of the runtime's own search, which the engine does not use. Numbers and switches alone."""

    diversity_penalty: float | int = 0.0
    do_sample: bool = False
    early_stopping: bool = True
    length_penalty: float | int = 1.0
    max_length: int = Field(ge=1, le=1 << 24)
    min_length: int = 0
    no_repeat_ngram_size: int = 0
    num_beams: int = 1
    num_return_sequences: int = 1
    past_present_share_buffer: bool = True
    repetition_penalty: float | int = 1.0
    temperature: float | int = 1.0
    top_k: int = 50
    top_p: float | int = 1.0


class GenaiConfig(_Closed):
    """All of `genai_config.json`."""

    model: Model
    search: Search

    def for_engine(self, *, context_tokens: int, threads: int) -> dict[str, Any]:
        """The configuration that the engine loads: the model's facts, and options of our own."""
        model = self.model.model_dump(exclude_none=True)
        model["decoder"]["session_options"] = {"intra_op_num_threads": threads, "provider_options": []}
        return {
            "model": model,
            "search": {
                "max_length": context_tokens,
                "past_present_share_buffer": self.search.past_present_share_buffer,
            },
        }
