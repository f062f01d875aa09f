"""The fleet as data: what a backend reports (`Heartbeat`, wire) and what policies read (`BackendSnapshot`, frozen).

A wire value is never trusted further than its type and range; freshness is judged by the reader's own monotonic
clock at receipt, so no wall clock of a device takes part in any decision.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

HEARTBEAT_VERSION: Literal[1] = 1
BackendId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Zone(StrEnum):
    """How far from the user's data a backend stands, near to far."""

    __hash__ = str.__hash__  # an enum's own is a call; these are looked up for every backend of every decision

    DEVICE = "device"
    SITE = "site"
    CLOUD = "cloud"

    tier: Literal["edge", "cloud"]
    """The tier a client sees: device and site are `edge`."""

    def __init__(self, name: str) -> None:
        self.tier = "cloud" if name == "cloud" else "edge"


class ThermalLevel(StrEnum):
    """Rung of the thermal ladder; `unknown` is handled as `warm`, never as cool."""

    __hash__ = str.__hash__  # an enum's own is a call; these are looked up for every backend of every decision

    NOMINAL = "nominal"
    WARM = "warm"
    HOT = "hot"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


class BackendState(StrEnum):
    """Whether a backend takes work."""

    READY = "ready"
    STARTING = "starting"
    SCALED_TO_ZERO = "scaled_to_zero"
    DRAINING = "draining"
    FAILED = "failed"


_MOST = 2**53
"""Of any count: whatever is larger, some reader of JSON cannot keep, and ours cannot write."""


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, str_max_length=512)


class ServedModel(_Wire):
    """One model (or adapter) that a backend serves, with the context of a single slot."""

    model_id: str = Field(min_length=1, max_length=256)
    digest: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    context_tokens: int | None = Field(default=None, ge=1, le=_MOST)
    """Context of one slot: what a single request may use, prompt and output together."""
    features: tuple[str, ...] = ()
    tokenizer: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """Fingerprint of token list, special ids and chat template (`shared.tokenizer`)."""


class Heartbeat(_Wire):
    """What an edge agent reports once a second and on every change.

    Rates are measured tokens per second, or None where nothing was measured yet: a missing figure is neither
    idle nor full. A figure that is added later is optional and leaves `version` as it is. `sequence` grows by one per
    beat within one `instance`, which is new at every process start.
    """

    version: Literal[1] = HEARTBEAT_VERSION
    backend_id: BackendId
    instance: str = Field(min_length=8, max_length=64)
    sequence: int = Field(ge=0, le=_MOST)
    url: str = Field(pattern=r"^https?://[^\s/@]+(/[^\s@]*)?$", max_length=512)
    zone: Literal[Zone.DEVICE, Zone.SITE] = Zone.DEVICE
    state: BackendState
    models: tuple[ServedModel, ...] = Field(default=(), max_length=256)
    level: ThermalLevel = ThermalLevel.UNKNOWN
    temperature_c: float | None = Field(default=None, ge=-50, le=200)
    derate_ratio: float = Field(default=1.0, gt=0, le=1)
    """Share of the nominal speed that the thermal ladder leaves."""
    slots_total: int | None = Field(default=None, ge=0, le=_MOST)
    slots_busy: int | None = Field(default=None, ge=0, le=_MOST)
    queued: int | None = Field(default=None, ge=0, le=_MOST)
    queue_limit: int | None = Field(default=None, ge=0, le=_MOST)
    prefill_tokens_per_s: float | None = Field(default=None, gt=0)
    decode_tokens_per_s: float | None = Field(default=None, gt=0)
    slot_wait_s: float | None = Field(default=None, ge=0, le=86_400)
    """When one more request would have a slot, by what the device knows of those that stand in its line; None: one is
    free, or nobody can tell."""
    turn_s: float | None = Field(default=None, ge=0, le=86_400)
    """How long answers lately held their slots, prompt included; None: none was given yet."""
    output_cap_tokens: int | None = Field(default=None, ge=1, le=_MOST)
    memory_available_bytes: int | None = Field(default=None, ge=0, le=_MOST)
    on_mains: bool | None = None
    battery_percent: float | None = Field(default=None, ge=0, le=100)
    speculation: str | None = Field(default=None, max_length=64)
    """How the engine speculates now: `off` or the name of a mode."""
    seconds_to_throttle: float | None = Field(default=None, ge=0)
    """When the next thermal level is reached under the present load; None: not known, or not in sight."""
    watts: float | None = Field(default=None, ge=0)
    joules_per_token: float | None = Field(default=None, ge=0)
    """Energy of the whole processor for one output token."""


def beat_bytes(beat: Heartbeat) -> bytes:
    """The bytes in which a beat is sent and signed: its sequence first, because what follows seldom changes and a store
    may keep it apart."""
    return with_sequence(beat.model_dump_json(exclude={"sequence"}).encode(), beat.sequence)


def with_sequence(rest: bytes, sequence: int) -> bytes:
    """The beat whose JSON without its sequence is `rest`."""
    return b'{"sequence":%d,%s' % (sequence, rest.lstrip()[1:])


def without_sequence(body: bytes, sequence: int) -> bytes | None:
    """The `rest` from which `with_sequence` makes `body`; None where it is not in that form."""
    head = b'{"sequence":%d,' % sequence
    return b"{" + body[len(head) :] if body.startswith(head) else None


class CloudAdapter(_Wire):
    """One LoRA adapter that is registered for a model of the cloud tier."""

    name: str = Field(min_length=1, max_length=64)
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    replicas: int = Field(ge=0)
    """Replicas that have it loaded; others load it at its first request."""


class CloudCapacity(_Wire):
    """Answer of the cloud tier's capacity route for one model; read without waking a replica."""

    version: Literal[1] = 1
    model_id: str = Field(min_length=1, max_length=256)
    state: BackendState
    digest: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    context_tokens: int | None = Field(default=None, ge=1)
    replicas_ready: int | None = Field(default=None, ge=0)
    replicas_target: int | None = Field(default=None, ge=0)
    running: int | None = Field(default=None, ge=0)
    waiting: int | None = Field(default=None, ge=0)
    kv_cache_use_ratio: float | None = Field(default=None, ge=0, le=1)
    max_concurrency: int | None = Field(default=None, ge=1)
    """Sequences that one replica decodes side by side."""
    replicas_starting: int | None = Field(default=None, ge=0)
    kv_cache_tokens: int | None = Field(default=None, ge=0)
    """What the caches of all replicas hold together."""
    prefix_hit_ratio: float | None = Field(default=None, ge=0, le=1)
    """Share of prompt tokens that lately came from a cache."""
    output_tokens_per_s: float | None = Field(default=None, ge=0)
    adapters: tuple[CloudAdapter, ...] = Field(default=(), max_length=256)
    features: tuple[str, ...] = Field(default=(), max_length=64)
    tokenizer: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """As in `ServedModel`."""


class Breaker(StrEnum):
    """State of the router's circuit breaker for one backend."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"


class BackendSnapshot(NamedTuple):
    """One backend as a policy sees it at one instant of the router's monotonic clock (milliseconds)."""

    backend_id: str
    zone: Zone
    url: str
    state: BackendState
    models: tuple[ServedModel, ...]
    received_ms: int | None
    """When the last report arrived; None for a static backend that never reports."""
    level: ThermalLevel = ThermalLevel.UNKNOWN
    derate_ratio: float = 1.0
    slots_total: int | None = None
    slots_busy: int | None = None
    queued: int | None = None
    queue_limit: int | None = None
    prefill_tokens_per_s: float | None = None
    decode_tokens_per_s: float | None = None
    ttft_ms: float | None = None
    """Time to first token that this router observed (EWMA), for backends that do not report rates."""
    ttft_ms_by_prompt: tuple[float | None, ...] = ()
    """The same per prompt size, indexed by `prompt_bucket`; where it has a figure, it wins over `ttft_ms`."""
    answer_tokens: float | None = None
    """Output tokens of an answer there, as this router observed them (EWMA)."""
    slot_wait_s: float | None = None
    """As in `Heartbeat`."""
    turn_s: float | None = None
    """As in `Heartbeat`."""
    output_cap_tokens: int | None = None
    temperature_c: float | None = None
    speculation: str | None = None
    seconds_to_throttle: float | None = None
    breaker: Breaker = Breaker.CLOSED
    cooling_until_ms: int | None = None
    """A Retry-After that still runs for this backend's rate domain."""
    in_flight: int = 0
    """Requests this router has open there now."""

    def heard_at(self, received_ms: int) -> BackendSnapshot:
        """The same, with a later report that said the same."""
        return self._replace(received_ms=received_ms)

    def model(self, model_id: str) -> ServedModel | None:
        """The served model of that name, if any."""
        for served in self.models:
            if served.model_id == model_id:
                return served
        return None


PROMPT_BUCKETS_TOKENS = (256, 1_024, 4_096)
"""Upper bounds of the prompt sizes over which times to first token are averaged; the last bucket is open."""


def prompt_bucket(prompt_tokens: int) -> int:
    """Index of the bucket for a prompt of `prompt_tokens`, 0 to `len(PROMPT_BUCKETS_TOKENS)`."""
    return bisect_left(PROMPT_BUCKETS_TOKENS, prompt_tokens)


@dataclass(frozen=True, slots=True)
class Incumbent:
    """The tier that free choices went to last, and since when (router's monotonic clock, milliseconds)."""

    tier: Literal["edge", "cloud"]
    since_ms: int


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """All known backends at one instant, and the tier that is in use (None: nothing was chosen yet)."""

    backends: tuple[BackendSnapshot, ...]
    taken_ms: int
    incumbent: Incumbent | None = None
    places: Mapping[str, int] | None = field(default=None, compare=False, repr=False)
    """Index of each id in `backends`, from a maker of many snapshots; without it, they are searched."""

    def backend(self, backend_id: str) -> BackendSnapshot | None:
        """The backend with that id."""
        if self.places is None:
            return next((backend for backend in self.backends if backend.backend_id == backend_id), None)
        place = self.places.get(backend_id)
        return None if place is None else self.backends[place]

    def context_of(self, model_id: str, backend_id: str) -> int | None:
        """The context that a backend declares for a model (tokens); None where it does not, or there is none."""
        backend = self.backend(backend_id)
        served = None if backend is None else backend.model(model_id)
        return None if served is None else served.context_tokens
