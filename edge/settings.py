"""Settings of the edge agent: the section `edge:` of the YAML file, over it `ISTHMUS__EDGE__…`."""

from __future__ import annotations

import hashlib
import re
import socket
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from edge.speed_settings import EngineSettings, SpeculationSettings
from shared.fleet import BackendId, Zone
from shared.http.intake import DEFAULT_LIMIT_BYTES
from shared.http.settings import CertificateSettings
from shared.keys import ApiKey, Scope
from shared.settings import SectionSettings, home
from shared.state.settings import RedisSettings
from shared.tracing.settings import TracingSettings

DEFAULT_MODEL = "smollm2-135m-instruct"
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def _addressable(url: str) -> str:
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    if not named:
        raise ValueError("must name a server, and a port between 1 and 65535 if any")
    return url


HttpUrl = Annotated[
    str, StringConstraints(pattern=r"^https?://[^\s/@]+(/[^\s@]*)?$", max_length=512), AfterValidator(_addressable)
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class KeySettings(_Part):
    """One API key that may call this agent; the key itself is never stored."""

    name: str = Field(min_length=1, max_length=64, description="Name of the key for people and logs.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Hex SHA-256 of the key.")
    scopes: frozenset[Scope] = Field(default=frozenset({Scope.INFERENCE}), description="What the key may do.")


class LimitSettings(_Part):
    """Bounds on what one client, or all together, can make the agent hold."""

    body_bytes: int = Field(default=DEFAULT_LIMIT_BYTES, ge=1024, description="Largest request body.")
    connections: int = Field(
        default=256, ge=1, description="Requests open at once, waiting ones included; probes do not count."
    )
    body_s: float = Field(default=30.0, gt=0, description="Time a client has to send its body.")
    client_stall_s: float = Field(
        default=60.0, gt=0, description="How long a client may leave a stream unread before its slot is taken back."
    )
    grammar_s: float = Field(default=1.0, gt=0, le=30, description="Processor time for compiling a request's schemas.")


class SensorSettings(_Part):
    """How the sensors that fit a pattern are read; the first entry that fits a sensor counts."""

    match: str = Field(
        min_length=1, max_length=128, description="Shell pattern over the type (coretemp) or name (coretemp/Core 0)."
    )
    use: bool = Field(default=True, description="Whether these sensors count.")
    degrees_per_unit: float | None = Field(
        default=None, gt=0, le=10, description="What one unit of the reading is in degrees; none: a thousandth."
    )
    offset_c: float = Field(default=0.0, ge=-300, le=300, description="Added to every reading.")
    lowest_c: float = Field(default=-40.0, ge=-100, le=200, description="Below it a reading is absurd.")
    highest_c: float = Field(default=150.0, ge=-100, le=300, description="Above it a reading is absurd.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.lowest_c >= self.highest_c:
            raise ValueError("lowest_c must be below highest_c")
        return self


class LevelSettings(_Part):
    """What a thermal level takes away."""

    speculation: bool = Field(default=False, description="Whether the engine may speculate.")
    threads_ratio: float = Field(
        default=0.5, gt=0, le=1, description="Share of the engine's threads that stays, at least one of each kind."
    )
    slots: int | None = Field(default=None, ge=1, le=64, description="Requests side by side at most; none: all slots.")
    output_cap_tokens: int | None = Field(default=None, ge=1, description="Longest answer; none: no limit of its own.")
    admits: bool = Field(default=True, description="Whether new work is taken.")
    derate_ratio: float = Field(
        default=0.9, gt=0, le=1, description="Share of its speed that routers credit the device with at most."
    )


class _Hot(LevelSettings):
    slots: int | None = Field(default=1, ge=1, le=64, description="Requests side by side at most; none: all slots.")
    output_cap_tokens: int | None = Field(default=256, ge=1, description="Longest answer; none: no limit of its own.")
    derate_ratio: float = Field(
        default=0.6, gt=0, le=1, description="Share of its speed that routers credit the device with at most."
    )


class _Critical(_Hot):
    admits: bool = Field(default=False, description="Whether new work is taken.")
    derate_ratio: float = Field(
        default=0.3, gt=0, le=1, description="Share of its speed that routers credit the device with at most."
    )


class LevelsSettings(_Part):
    """The measures of each level. `unknown` has those of warm, nominal takes nothing away."""

    warm: LevelSettings = Field(default=LevelSettings(), description="Measures while warm, and while heat is unknown.")
    hot: _Hot = Field(default=_Hot(), description="Measures while hot.")
    critical: _Critical = Field(default=_Critical(), description="Measures while critical.")


class ThermalSettings(_Part):
    """The heat control loop: where sensors are, what counts as hot, how fast levels may change."""

    roots: tuple[Path, ...] = Field(default=(Path("/sys"),), description="Sysfs-shaped trees to read sensors from.")
    libraries: tuple[Literal["nvml", "psutil"], ...] = Field(
        default=("nvml", "psutil"),
        description="What else to ask, while /sys is among the roots: nvml for NVIDIA GPUs, psutil where no tree is.",
    )
    sensors: tuple[SensorSettings, ...] = Field(default=(), description="Sensors that need a scale, bounds or a no.")
    ignore: tuple[str, ...] = Field(
        default=(
            *("iwlwifi*", "ath*", "mt7*", "rtw*", "nvme*", "drivetemp*", "BAT*", "*battery*"),
            *("sfp*", "*phy*", "mlx*", "r8169*"),  # ports and their chips, some of which run at 90 degrees
            # Super-I/O chips of main boards: inputs that nothing is wired to show up to 127 degrees for ever.
            *("nct6*", "it8[0-9]*", "w83*", "f718*", "sch5*"),
        ),
        description="Sensor types (shell patterns) that say nothing about the processor.",
    )
    cooled: bool = Field(
        default=False,
        description="Says that a machine which shows no sensor at all, such as a virtual one, is cooled: its level is "
        "nominal then, not unknown. Where any sensor was seen, sensors decide.",
    )
    warm_c: float = Field(default=75.0, description="From here: speculation off.")
    hot_c: float = Field(default=85.0, description="From here: one slot, output capped.")
    critical_c: float = Field(default=95.0, description="From here: no new work.")
    hysteresis_c: float = Field(default=5.0, gt=0, description="A level is left only this far below its threshold.")
    dwell_s: float = Field(default=10.0, ge=0, description="Shortest time before a level may be left downwards.")
    lost_hold_s: float = Field(
        default=60.0, ge=0, description="How long hot or critical stays in force once its sensor stopped answering."
    )
    stuck_busy_s: float = Field(
        default=120.0,
        ge=0,
        description="Work without any movement after which a cool sensor counts as stuck; 0: never.",
    )
    interval_s: float = Field(default=0.5, gt=0, le=60, description="Time between readings while nothing changes.")
    forecast_period_s: float = Field(
        default=1.0, gt=0, le=60, description="Time over which the slope is taken that the thermal model is fitted to."
    )
    time_scale: float = Field(
        default=1.0, ge=1, le=1000, description="Divides the times of this section, for a simulated device."
    )
    levels: LevelsSettings = Field(default=LevelsSettings(), description="What each level takes away.")
    battery_low_percent: float = Field(default=20.0, ge=0, le=100, description="Below it on battery: at least warm.")
    battery_critical_percent: float = Field(default=5.0, ge=0, le=100, description="Below it on battery: at least hot.")
    battery_empty_percent: float = Field(default=2.0, ge=0, le=100, description="Below it on battery: critical.")

    @property
    def scaled_dwell_s(self) -> float:
        """`dwell_s` as it is in force."""
        return self.dwell_s / self.time_scale

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.warm_c < self.hot_c < self.critical_c:
            raise ValueError("warm_c, hot_c and critical_c must rise in this order")
        if self.hysteresis_c >= min(self.hot_c - self.warm_c, self.critical_c - self.hot_c):
            raise ValueError("hysteresis_c must be smaller than the distance between two levels")
        if not self.battery_empty_percent <= self.battery_critical_percent <= self.battery_low_percent:
            raise ValueError("battery_empty_percent, _critical_percent and _low_percent must not fall in this order")
        return self


class TrustSettings(_Part):
    """Who may vouch for packages, and what happens to a package for which nobody does."""

    policy: Literal["require", "warn", "off"] | None = Field(
        default=None,
        description="A package without a signature by a trusted key: require refuses it, warn says so, off does not "
        "look; none: require once any key is trusted.",
    )
    dir: Path | None = Field(default=None, description="Trusted keys and time; default: trust in the Isthmus home.")


class SourceSettings(_Part):
    """Where packages may be fetched from."""

    hub_url: HttpUrl | None = Field(
        default=None, description="Base URL of the repository server for hf:OWNER/NAME/FILE; none: such are refused."
    )
    allow_http: bool = Field(default=False, description="Allow plain HTTP to other machines than this one.")
    limit: ByteSize = Field(default=ByteSize(64 << 30), ge=1, description="Largest package that is fetched, in all.")


class MemorySettings(_Part):
    """What the engine may take, and what happens when the device runs short while it serves."""

    reserve: ByteSize = Field(default=ByteSize(256 << 20), ge=0, description="Left to the system, such as 256MiB.")
    minimum_context_tokens: int = Field(
        default=2048, ge=256, description="Least context of a slot: below it the start is refused."
    )
    kv_type: Literal["f16", "q8_0", "q4_0"] = Field(default="f16", description="Element type of the KV cache.")
    lock: bool = Field(default=False, description="Lock the weights in memory (needs RLIMIT_MEMLOCK of their size).")
    root: Path = Field(
        default=Path("/"), description="Tree with proc/meminfo, proc/pressure/memory and sys/fs/cgroup to watch."
    )
    low: ByteSize = Field(
        default=ByteSize(128 << 20), ge=0, description="Below this much available memory the agent gives back."
    )
    critical: ByteSize = Field(default=ByteSize(64 << 20), ge=0, description="Below this much it takes nothing new.")
    hysteresis: ByteSize = Field(
        default=ByteSize(128 << 20), ge=0, description="What must be available beyond `low` before it takes more again."
    )
    stall_percent: float = Field(
        default=10.0, gt=0, le=100, description="Share of time stalled for memory (PSI, 10 s) that counts as short."
    )
    settle_s: float = Field(default=5.0, ge=0, description="Time a step down has to take effect before the next.")
    dwell_s: float = Field(default=30.0, ge=0, description="Time memory must be plentiful before a step up.")
    interval_s: float = Field(default=0.5, gt=0, le=60, description="Time between readings.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.critical > self.low:
            raise ValueError("critical must not be larger than low")
        return self


class AdapterSettings(_Part):
    """LoRA adapters: where they are kept, and how many are loaded at once."""

    dir: Path | None = Field(default=None, description="Registered adapters; default: adapters in the Isthmus home.")
    rank_limit: int = Field(default=64, ge=1, le=1024, description="Highest rank of any module of an adapter.")
    count: int = Field(default=4, ge=1, le=32, description="Adapters loaded at once.")
    memory: ByteSize = Field(
        default=ByteSize(256 << 20), ge=0, description="What the adapters loaded at once may take together."
    )
    limit: ByteSize = Field(default=ByteSize(256 << 20), ge=1, description="Largest file that is registered.")
    wait_s: float = Field(
        default=30.0, ge=0, description="How long a request waits for room that other adapters in use hold."
    )


class RouterTlsSettings(CertificateSettings):
    """How a router with an https address is reached, in PEM; files that are replaced are used from the next report."""


class RouterSettings(_Part):
    """Where this agent reports."""

    redis: RedisSettings | None = Field(
        default=None, description="Report into the Redis of the routers instead of to one router."
    )

    url: HttpUrl | None = Field(default=None, description="Base URL of the router; none means no heartbeat.")
    key_file: Path | None = Field(default=None, description="File with a key of scope fleet:report.")
    tls: RouterTlsSettings = Field(default=RouterTlsSettings(), description="TLS to a router with an https address.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.url is not None and self.redis is not None:
            raise ValueError("set url or redis, not both")
        return self


class EdgeSettings(SectionSettings, section="edge"):
    """Everything an agent can be told."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(default=8081, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    model: str = Field(default=DEFAULT_MODEL, min_length=1, max_length=256, description="Installed package to serve.")
    models_dir: Path | None = Field(default=None, description="Model store; default: models in the Isthmus home.")
    run_dir: Path | None = Field(default=None, description="Sockets and process files; default: run/edge at home.")
    context_tokens: int | None = Field(default=None, ge=256, description="Context of a slot; none: what memory allows.")
    slots: int = Field(default=1, ge=1, le=64, description="Requests that the engine runs side by side.")
    queue: int = Field(default=16, ge=0, le=4096, description="Requests that may wait for a slot.")
    keepalive_s: float = Field(default=15.0, ge=0, description="Silence before an SSE comment is sent; 0: never.")
    idle_limit_s: float = Field(default=120.0, gt=0, description="Longest silence of the engine within one answer.")
    drain_limit_s: float = Field(default=30.0, ge=0, description="Time running answers have at shutdown.")
    zone: Literal[Zone.DEVICE, Zone.SITE] = Field(default=Zone.DEVICE, description="How near the data is.")
    device_dir: Path | None = Field(
        default=None, description="Key of this device and what it joined; default: device in the Isthmus home."
    )
    backend_id: BackendId | None = Field(default=None, description="Name in the fleet; default: from the host name.")
    advertise_url: HttpUrl | None = Field(
        default=None, description="URL at which routers reach this agent; unset: by the address that leads to them."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least level logged.")
    router: RouterSettings = Field(default=RouterSettings(), description="Where heartbeats go.")
    trust: TrustSettings = Field(default=TrustSettings(), description="Signatures of packages.")
    sources: SourceSettings = Field(default=SourceSettings(), description="Where packages may come from.")
    engine: EngineSettings = Field(default=EngineSettings(), description="Threads, batches and rest of the engine.")
    speculation: SpeculationSettings = Field(default=SpeculationSettings(), description="Several tokens at a time.")
    adapters: AdapterSettings = Field(default=AdapterSettings(), description="LoRA adapters.")
    memory: MemorySettings = Field(default=MemorySettings(), description="Memory of the engine and of the device.")
    thermal: ThermalSettings = Field(default=ThermalSettings(), description="Heat and power.")
    limits: LimitSettings = Field(default=LimitSettings(), description="Bounds on clients.")
    tracing: TracingSettings = Field(default=TracingSettings(), description="Where traces go (OpenTelemetry).")
    keys: tuple[KeySettings, ...] = Field(default=(), description="API keys; none is allowed on loopback only.")

    @field_validator("keys")
    @classmethod
    def _distinct(cls, keys: tuple[KeySettings, ...]) -> tuple[KeySettings, ...]:
        if len({key.name for key in keys}) != len(keys):
            raise ValueError("two keys have the same name")
        return keys

    @model_validator(mode="after")
    def _reachable_with_keys_only(self) -> Self:
        if self.host not in _LOOPBACK and not self.keys:
            raise ValueError("listening beyond loopback needs at least one entry in edge.keys")
        return self

    @property
    def api_keys(self) -> tuple[ApiKey, ...]:
        """The keys as `shared.keys` compares them."""
        return tuple(ApiKey(key.name, key.sha256, key.scopes) for key in self.keys)

    @property
    def store_dir(self) -> Path:
        """Where packages are installed."""
        return self.models_dir or home() / "models"

    @property
    def adapters_dir(self) -> Path:
        """Where adapters are registered."""
        return self.adapters.dir or home() / "adapters"

    @property
    def trust_dir(self) -> Path:
        """Where trusted keys, and what is known of time and channels, are kept."""
        return self.trust.dir or home() / "trust"

    @property
    def enrolment_dir(self) -> Path:
        """Where the key of this device, and what it joined, are kept."""
        return self.device_dir or home() / "device"

    @property
    def engine_dir(self) -> Path:
        """Where the engine's socket lives."""
        return self.run_dir or home() / "run" / "edge"

    def fleet_id(self) -> str:
        """`backend_id`, or one from the host name that is valid and tells two agents of one host apart."""
        if self.backend_id is not None:
            return self.backend_id
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", socket.gethostname().split(".")[0]).strip("-._")[:40]
        salt = hashlib.sha256(str(home()).encode()).hexdigest()[:6]
        return f"{name or 'edge'}-{salt}-{self.port}" if self.port != 8081 else f"{name or 'edge'}-{salt}"
