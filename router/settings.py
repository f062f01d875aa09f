"""Settings of the router: where it listens, whom it trusts, which backends it knows, and the rules it applies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from router.policy.model import Mode
from shared.fleet import BackendId, Zone
from shared.http.intake import DEFAULT_LIMIT_BYTES
from shared.keys import Scope
from shared.privacy import Action, PrivacyClass
from shared.settings import SectionSettings

Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$", max_length=512)]
ModelId = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\s\x00-\x1f]+$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class KeySettings(_Section):
    """One API key, known by its hash."""

    name: str = Field(min_length=1, max_length=64, description="Name for people; appears in the audit log.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Hex SHA-256 of the key.")
    scopes: frozenset[Scope] = Field(default=frozenset({Scope.INFERENCE}), description="What the key may do.")


class LimitSettings(_Section):
    """Bounds on what clients send."""

    body_bytes: int = Field(DEFAULT_LIMIT_BYTES, ge=1024, description="Largest request body.")
    in_flight: int = Field(4096, ge=1, description="Requests served at the same time; more get 503.")
    answer_bytes: int = Field(
        32 * 1024 * 1024, ge=1024, description="Largest answer of a backend that is not a stream, held in memory."
    )


class StaticModelSettings(_Section):
    """A model that a backend serves, said by the operator instead of measured."""

    id: ModelId = Field(description="Name that clients send as `model`.")
    digest: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$", description="Identity of the weights.")
    context_tokens: int | None = Field(default=None, ge=1, description="Context of one request.")
    features: tuple[str, ...] = Field(default=(), description="Features served, such as tools; empty: not declared.")


class CloudSettings(_Section):
    """One cloud endpoint."""

    id: BackendId = Field(description="Name of the backend.")
    url: Url = Field(description="Base address, without /v1.")
    models: tuple[StaticModelSettings, ...] = Field(
        default=(), description="Models served; empty: asked from the endpoint about once a second."
    )
    api_key_file: Path | None = Field(default=None, description="File with the key that this endpoint wants.")
    rate_domain: str | None = Field(
        default=None, max_length=64, description="Backends that share one quota name the same domain; unset: its own."
    )


class EdgeBackendSettings(_Section):
    """One edge agent that is named here instead of reporting itself."""

    id: BackendId = Field(description="Name of the backend.")
    url: Url = Field(description="Base address, without /v1.")
    zone: Literal[Zone.DEVICE, Zone.SITE] = Field(Zone.DEVICE, description="How far from the user's data it stands.")
    models: tuple[StaticModelSettings, ...] = Field(
        default=(), description="Models served; empty: asked from the agent about once a second."
    )
    api_key_file: Path | None = Field(default=None, description="File with the key that this agent wants.")


def _default_actions() -> dict[PrivacyClass, Action]:
    return {
        PrivacyClass.PUBLIC: Action.ANY,
        PrivacyClass.PERSONAL: Action.EDGE_ONLY,
        PrivacyClass.SECRET: Action.EDGE_ONLY,
        PrivacyClass.UNKNOWN: Action.EDGE_ONLY,
    }


class SloSettings(_Section):
    """What counts as fast enough."""

    ttft_ms: float = Field(2_000, gt=0, description="Time to first token.")
    tpot_ms: float = Field(150, gt=0, description="Time per output token after the first.")


class PolicySettings(_Section):
    """The rules of every decision."""

    mode: Mode = Field(Mode.PREFER_EDGE, description="Which tier is preferred once privacy has had its say.")
    actions: dict[PrivacyClass, Action] = Field(
        default_factory=_default_actions, description="What happens with each privacy class."
    )
    slo: SloSettings = Field(default_factory=SloSettings, description="What counts as fast enough.")
    stale_after_ms: int = Field(
        3_000, ge=100, description="Silence after which an edge agent is not used: three heartbeats."
    )
    default_output_tokens: int = Field(256, ge=1, description="Answer length assumed when the caller sets none.")
    hysteresis_ratio: float = Field(0.2, ge=0, lt=1, description="Margin by which a tier must be better to switch.")
    dwell_ms: int = Field(5_000, ge=0, description="How long a tier stays in use before a return is considered.")


class ScanSettings(_Section):
    """Bounds on the privacy scan; what is beyond them is class unknown."""

    timeout_s: float = Field(1.0, gt=0, description="Longest scan of one body.")
    workers: int = Field(2, ge=1, le=64, description="Scans that run beside the event loop at the same time.")


class TimeoutSettings(_Section):
    """The three limits on a backend; there is none on the whole answer."""

    connect_s: float = Field(2, gt=0, description="Until the connection stands.")
    first_token_s: float = Field(30, gt=0, description="From sending the request to the first content.")
    idle_s: float = Field(15, gt=0, description="Between two events of a stream.")
    answer_s: float = Field(
        600, ge=0, description="Until the whole answer, for requests that are not streamed; 0: no limit."
    )


class RetrySettings(_Section):
    """How much extra load failover may cause."""

    budget_ratio: float = Field(0.1, ge=0, le=1, description="Retries allowed for each first attempt.")
    floor_per_10s: int = Field(10, ge=0, description="Retries always allowed in ten seconds, for quiet routers.")
    backoff_base_ms: int = Field(10, ge=0, description="Upper bound of the jittered wait before the first retry.")
    backoff_cap_ms: int = Field(200, ge=0, description="Upper bound of any wait before a retry.")


class StateSettings(_Section):
    """Where fleet state lives."""

    kind: Literal["memory", "redis"] = Field("memory", description="memory: one router; redis: many.")
    url: str | None = Field(default=None, description="Redis address as a URL; wins over host and port.")
    host: str = Field("127.0.0.1", description="Host of Redis.")
    port: int = Field(6379, ge=1, le=65535, description="Port of Redis.")
    password_file: Path | None = Field(default=None, description="File with the password of Redis.")
    refresh_ms: int = Field(250, ge=50, description="How often the fleet is read from Redis.")
    last_known_s: float = Field(15, ge=0, description="How long the last known fleet is used while Redis is gone.")


class DeviceSettings(_Section):
    """Devices that joined with a token, whose reports are signed."""

    required: bool = Field(
        False, description="Take reports of enrolled devices alone; else also unsigned ones in names that none joined."
    )
    file: Path | None = Field(default=None, description="Register of devices; unset: $ISTHMUS_HOME/devices.json.")


class AuditSettings(_Section):
    """Where the record of every request goes."""

    dir: Path | None = Field(default=None, description="Folder of the log; unset: $ISTHMUS_HOME/audit.")
    key_file: Path | None = Field(
        default=None, description="Key of digests and chain; unset: $ISTHMUS_HOME/audit.key, made on first use."
    )
    queue_records: int = Field(10_000, ge=1, description="Records held while the storage does not take them.")
    file_bytes: int = Field(64 * 1024 * 1024, ge=1024, description="Size at which a new file is begun.")


class RouterSettings(SectionSettings, section="router"):
    """Section `router`."""

    host: str = Field("127.0.0.1", description="Address to listen on; beyond loopback, keys are required.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0: any free one.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    keys: tuple[KeySettings, ...] = Field(default=(), description="Known API keys; none: no key is asked for.")
    limits: LimitSettings = Field(default_factory=LimitSettings, description="Bounds on what clients send.")
    policy: PolicySettings = Field(default_factory=PolicySettings, description="The rules of every decision.")
    scan: ScanSettings = Field(default_factory=ScanSettings, description="Bounds on the privacy scan.")
    aliases: dict[ModelId, ModelId] = Field(
        default_factory=dict, description="Names that clients may use for a model: alias to model id."
    )
    timeouts: TimeoutSettings = Field(default_factory=TimeoutSettings, description="Limits on a backend.")
    retry: RetrySettings = Field(default_factory=RetrySettings, description="How much load failover may add.")
    clouds: tuple[CloudSettings, ...] = Field(default=(), description="Cloud endpoints.")
    edges: tuple[EdgeBackendSettings, ...] = Field(default=(), description="Edge agents that do not report.")
    edge_api_key_file: Path | None = Field(
        default=None, description="File with the key that agents which report themselves want."
    )
    capacity_interval_s: float = Field(1.0, gt=0, description="How often clouds and static edges are asked.")
    state: StateSettings = Field(default_factory=StateSettings, description="Where fleet state lives.")
    devices: DeviceSettings = Field(default_factory=DeviceSettings, description="Devices that joined.")
    audit: AuditSettings = Field(default_factory=AuditSettings, description="Where the record of requests goes.")
    keepalive_s: float = Field(15, ge=0, description="Silence after which a stream gets a comment line; 0: never.")
    drain_limit_s: float = Field(30, ge=0, description="Time that running requests get at shutdown.")

    @model_validator(mode="after")
    def _ids_are_unique(self) -> RouterSettings:
        ids = [*(cloud.id for cloud in self.clouds), *(edge.id for edge in self.edges)]
        if len(set(ids)) != len(ids):
            raise ValueError("two backends have the same id")
        return self
