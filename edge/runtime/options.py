"""The closed set of options that may reach the engine, each within the range that is known not to kill or hang it.

Outside these ranges the engine aborts (`n_ctx=1`, `n_threads=0`), accepts and never answers (`n_parallel=0`) or
fails to load (quantised values without flash attention), so nothing else can be expressed here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from edge.memory.kv import KvType, aligned_tokens
from edge.packages.manifest import Pooling
from edge.scheduling.speculation import SpeculationMode
from edge.scheduling.tuning import MOST_THREADS, Spin
from shared.errors import SettingsError

_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
_RANGES: dict[str, tuple[int, int]] = {
    "context_tokens": (256, 1 << 24),
    "slots": (1, 64),
    "threads": (1, MOST_THREADS),
    "prefill_tokens": (1, 4096),
    "threads_batch": (1, MOST_THREADS),
    "batch_tokens": (32, 4096),
    "ubatch_tokens": (1, 4096),
    "prompt_cache_mib": (0, 65536),
    "ping_interval_s": (1, 3600),
    "sleep_after_s": (0, 7 * 24 * 3600),
    "gpu_layers": (0, 4096),
    "draft_tokens": (1, 64),
    "ngram_tokens": (2, 64),
}

LEAST_BATCH_TOKENS = _RANGES["batch_tokens"][0]
WHOLE_INPUT = frozenset({"mean", "cls"})
"""Kinds of pooling that need all tokens of a text in one micro-batch; the last token alone needs no others."""
_NEVER = _BY_ITSELF = -1
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_OVERRIDES_LIMIT = 16
# What the plan writes: layers and tensors by name. A comma or an equals sign would end the entry in the engine's list.
_TENSOR_PATTERN = re.compile(r"[A-Za-z0-9_.|()\\]{1,16384}")
_BRIEF_SPIN = {"GOMP_SPINCOUNT": "1000"}
"""Rounds of a thread at a barrier before it gives its core away: a few microseconds (libgomp's own: milliseconds)."""
DRAFT_TOKENS = 8
"""The engine's own 48 cost a processor as much as a dozen tokens of output, and most of them are not accepted: measured
in docs/explanation/scheduling.md."""
NGRAM_TOKENS = 6
_BY_CONTEXT = frozenset({SpeculationMode.NGRAM_SIMPLE, SpeculationMode.NGRAM_MAP_K, SpeculationMode.NGRAM_MAP_K4V})
_LONGEST_MEMORY_DRAFT_TOKENS, _SHORTEST_MEMORY_DRAFT_TOKENS = 64, 48
"""What `ngram_mod` proposes by itself, at most and at least."""
_LONGEST_MODEL_DRAFT_TOKENS = 16
"""What a draft model proposes at most."""
_OWN_RANGES = tuple(name for name in _RANGES if name not in ("prefill_tokens", "gpu_layers"))


def check_range(name: str, value: object) -> None:
    """Raise SettingsError unless `value` is an integer that the engine survives as option `name`."""
    least, most = _RANGES[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SettingsError(f"Engine option {name} must be between {least} and {most}.", param=name)


class ProcessOptions(Protocol):
    """What every kind of engine process is started with; contexts are per slot."""

    @property
    def slots(self) -> int:
        """Requests that run side by side."""

    @property
    def context_tokens(self) -> int:
        """Context of one slot."""

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Threads of each pool of the process, in an order of its own."""

    def with_thread_counts(self, counts: tuple[int, ...]) -> ProcessOptions:
        """The same with other counts, in the order of `thread_counts`."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that native libraries of the process read before anything of it runs."""

    def wire(self) -> dict[str, str | int | bool]:
        """The message to the process."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of one engine process, fixed for its life. `context_tokens` is per slot.

    Raises:
        SettingsError: a value lies outside its range, or two of them exclude each other.
    """

    model_alias: str
    context_tokens: int
    slots: int
    threads: int
    threads_batch: int
    planned_threads_batch: int | None = None
    """Threads that read prompts while the device is cool; None: as many as now."""
    kv_type: KvType = KvType.F16
    batch_tokens: int = 128
    ubatch_tokens: int = 63
    """Below 64 greedy output is bit-stable across resume, cache and batching."""
    flash_attention: bool = True
    prompt_cache_mib: int = 0
    ping_interval_s: int = 1
    lock_weights: bool = False
    """Keep the weights in memory whatever else wants it; the process must be allowed to lock that much."""
    sleep_after_s: int = 0
    """Without a request for this long the engine gives its memory back, and loads again for the next; 0: never."""
    speculation: SpeculationMode = SpeculationMode.OFF
    draft_tokens: int = DRAFT_TOKENS
    """Tokens that an n-gram kind proposes at once. The engine aborts when the drafts of all slots, each with the token
    before it, do not fit a batch: there they are shorter."""
    ngram_tokens: int = NGRAM_TOKENS
    """Last tokens that must have stood in the context before, for what followed them there to be proposed."""
    spin: Spin = Spin.LONG
    """How threads wait for each other."""
    gpu_layers: int | None = None
    """Last layers that a GPU computes, the head counting as one more; None: as the engine does by itself."""
    tensor_overrides: tuple[tuple[str, str], ...] = ()
    """Pattern over names of tensors, and the buffer type that holds those in spite of `gpu_layers`."""
    draft_device: str | None = None
    """Where the draft model runs; None: the processor."""
    pooling: Pooling | None = None
    """How the engine makes one vector of a text; None: it makes none."""

    def __post_init__(self) -> None:
        for name in _OWN_RANGES:
            check_range(name, getattr(self, name))
        if self.ubatch_tokens > self.batch_tokens:
            raise SettingsError("Engine option ubatch_tokens must not exceed batch_tokens.", param="ubatch_tokens")
        if self.kv_type is not KvType.F16 and not self.flash_attention:
            raise SettingsError("A quantised KV cache needs flash attention.", param="kv_type")
        if not _ALIAS.fullmatch(self.model_alias):
            raise SettingsError("The model's name must be letters, digits and ._:/- only.", param="model_alias")
        self._check_offload()

    def _check_offload(self) -> None:
        if self.gpu_layers is not None:
            check_range("gpu_layers", self.gpu_layers)
        if len(self.tensor_overrides) > _OVERRIDES_LIMIT or not all(
            _TENSOR_PATTERN.fullmatch(pattern) and _DEVICE.fullmatch(buffer)
            for pattern, buffer in self.tensor_overrides
        ):
            raise SettingsError("Engine option tensor_overrides does not hold.", param="tensor_overrides")
        if self.draft_device is not None and not _DEVICE.fullmatch(self.draft_device):
            raise SettingsError("Engine option draft_device is no name of a device.", param="draft_device")

    @property
    def environment(self) -> Mapping[str, str]:
        """What libgomp reads when it is loaded; nothing where its own way is wanted, so that the operator's stays."""
        return _BRIEF_SPIN if self.spin is Spin.BRIEF else {}

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Threads that decode, and threads that read prompts."""
        return self.threads, self.threads_batch

    def with_thread_counts(self, counts: tuple[int, ...]) -> EngineOptions:
        """The same with other counts."""
        threads, threads_batch = counts
        planned = self.planned_threads_batch or self.threads_batch
        return replace(self, threads=threads, threads_batch=threads_batch, planned_threads_batch=planned)

    @property
    def read_tokens(self) -> int:
        """Prompt tokens that are read at once: fewer threads read less of a prompt, in whole micro-batches, so that
        streams beside it wait no longer. A text whose vector is made of all its tokens is read whole, and guessing
        ahead needs the room."""
        planned = self.planned_threads_batch
        if planned is None or self.pooling in WHOLE_INPUT or self.speculation is not SpeculationMode.OFF:
            return self.batch_tokens
        tokens = self.batch_tokens * self.threads_batch // planned
        return max(LEAST_BATCH_TOKENS, tokens // self.ubatch_tokens * self.ubatch_tokens or tokens)

    @property
    def draft_room_tokens(self) -> int:
        """The longest draft that a batch holds of every slot, beside the token before it; 0: none can speculate."""
        return max(0, self.batch_tokens // self.slots - 1)

    def _draft_lengths(self) -> dict[str, int]:
        """What the kind in force is told about lengths, by the engine's names."""
        room = self.draft_room_tokens
        if self.speculation in _BY_CONTEXT:
            return {"size_n": self.ngram_tokens, "size_m": min(self.draft_tokens, room)}
        if self.speculation is SpeculationMode.NGRAM_MOD:
            limits = {"n_max": _LONGEST_MEMORY_DRAFT_TOKENS, "n_min": _SHORTEST_MEMORY_DRAFT_TOKENS}
            return {name: min(limit, room) for name, limit in limits.items()}
        if self.speculation is SpeculationMode.DRAFT:
            return {"n_max": min(_LONGEST_MODEL_DRAFT_TOKENS, room)}
        return {}

    def wire(self) -> dict[str, str | int | bool]:
        """The message to the child process: the engine's own names, total context over all slots."""
        return {
            "model_alias": self.model_alias,
            "n_ctx": aligned_tokens(self.context_tokens) * self.slots,
            "n_parallel": self.slots,
            "n_threads": self.threads,
            "n_threads_batch": self.threads_batch,
            "n_batch": self.read_tokens,
            "n_ubatch": min(self.ubatch_tokens, self.read_tokens),
            "kv_type": self.kv_type.value,
            "flash_attention": self.flash_attention,
            "cache_ram_mib": self.prompt_cache_mib,
            "sse_ping_interval": self.ping_interval_s,
            "lock_weights": self.lock_weights,
            "sleep_idle_seconds": self.sleep_after_s or _NEVER,
            "speculation": self.speculation.value,
            "draft_lengths": ",".join(f"{name}={length}" for name, length in self._draft_lengths().items()),
            "poll": self.spin is Spin.LONG,
            "n_gpu_layers": _BY_ITSELF if self.gpu_layers is None else self.gpu_layers,
            "tensor_overrides": ",".join(f"{pattern}={buffer}" for pattern, buffer in self.tensor_overrides),
            "draft_device": self.draft_device or "",
            "pooling": self.pooling or "",
        }
