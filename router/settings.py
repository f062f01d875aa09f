"""Settings of the router: where it listens, whom it trusts, which backends it knows, and the rules it applies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from router.audit.storage import Sync
from router.privacy.returning import AnswerScanning
from router.rulebook.defaults import PolicyDefaults
from router.rulebook.looked_for import FoundClass, Kind, PatternSettings, WordList
from shared.fleet import BackendId, Zone
from shared.http.intake import DEFAULT_LIMIT_BYTES
from shared.http.settings import CertificateSettings
from shared.keys import KeyLimits, Scope
from shared.local_keys import RESERVED_PREFIX
from shared.privacy import PrivacyClass
from shared.settings import SectionSettings
from shared.state.settings import RedisSettings
from shared.tracing.settings import TracingSettings

Url = Annotated[
    str,
    StringConstraints(
        pattern=r"^https?://[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]+(/[A-Za-z0-9._~%!$&'()*+,;=:\[\]/-]*)?$", max_length=512
    ),
]
ModelId = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\s\x00-\x1f]+$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class KeySettings(_Section):
    """One API key, known by its hash."""

    name: str = Field(min_length=1, max_length=64, description="Name for people; appears in the audit log.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Hex SHA-256 of the key.")
    scopes: frozenset[Scope] = Field(default=frozenset({Scope.INFERENCE}), description="What the key may do.")
    requests_per_minute: int | None = Field(default=None, ge=1, description="Requests in any minute; unset: any.")
    tokens_per_minute: int | None = Field(
        default=None, ge=1, description="Tokens of prompts and answers in any minute; unset: any."
    )
    concurrent: int | None = Field(default=None, ge=1, description="Requests running at the same time; unset: any.")

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name.startswith(RESERVED_PREFIX):
            raise ValueError(f"names that begin with {RESERVED_PREFIX} are the router's own")
        return name

    def limits(self) -> KeyLimits:
        """The limits as one value."""
        return KeyLimits(self.requests_per_minute, self.tokens_per_minute, self.concurrent)


class LimitSettings(_Section):
    """Bounds on what clients send."""

    body_bytes: int = Field(DEFAULT_LIMIT_BYTES, ge=1024, description="Largest request body.")
    in_flight: int = Field(4096, ge=1, description="Requests served at the same time; more get 503.")
    backend_in_flight: int = Field(1024, ge=1, description="Requests open at one backend at the same time.")
    answer_bytes: int = Field(
        32 * 1024 * 1024, ge=1024, description="Largest answer of a backend that is not a stream, held in memory."
    )


class StaticModelSettings(_Section):
    """A model that a backend serves, said by the operator instead of measured."""

    id: ModelId = Field(description="Name that clients send as `model`.")
    digest: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$", description="Identity of the weights.")
    context_tokens: int | None = Field(default=None, ge=1, description="Context of one request.")
    features: tuple[str, ...] = Field(
        default=(), description="Features served, such as tools; none: OpenAI's own, and neither lora nor continuation."
    )


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
    max_in_flight: int | None = Field(
        default=None, ge=1, description="Requests open there at the same time; unset: limits.backend_in_flight."
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
    max_in_flight: int | None = Field(
        default=None, ge=1, description="Requests open there at the same time; unset: limits.backend_in_flight."
    )


class PolicySettings(PolicyDefaults):
    """The rules of every decision: these defaults, and a file whose own defaults and rules come over them."""

    file: Path | None = Field(
        default=None, description="Policy file with rules; its defaults win over those here. Unset: no rules."
    )
    reload_s: float = Field(
        1.0, gt=0, description="How often the file is looked at; SIGHUP asks at once. An invalid change is refused."
    )


class WordListSettings(WordList):
    """Words of your own, such as names of projects or customers, found in any case."""

    file: Path | None = Field(default=None, description="A file with more words, one a line.")


class PluginSettings(_Section):
    """A recogniser that another distribution offers. It gets neither the network nor another process."""

    name: str = Field(min_length=1, max_length=64, description="Name of the entry point, such as presidio or spacy.")
    options: dict[str, Any] = Field(default_factory=dict, description="What the recogniser itself is told.")
    classes: dict[Kind, FoundClass] = Field(default_factory=dict, description="Class by kind of finding.")
    others: FoundClass | None = Field(
        PrivacyClass.PERSONAL, description="Class of kinds that are not listed; null leaves them out."
    )
    least_score: float = Field(0.5, ge=0, le=1, description="Findings that are less sure do not count.")


class ScanSettings(_Section):
    """Bounds on the privacy scan; what is beyond them is class unknown."""

    timeout_s: float = Field(1.0, gt=0, description="Longest scan of one body.")
    workers: int = Field(2, ge=1, le=64, description="Scans that run beside the event loop at the same time.")
    answers: AnswerScanning = Field(
        AnswerScanning.OFF,
        description="Whose answers are scanned too, with findings replaced: off, cloud or all. Text is then held back "
        "by about a line.",
    )
    patterns: tuple[PatternSettings, ...] = Field(default=(), description="Regular expressions of your own.")
    word_lists: tuple[WordListSettings, ...] = Field(default=(), description="Words of your own.")
    plugins: tuple[PluginSettings, ...] = Field(default=(), description="Recognisers of other distributions.")


class SessionSettings(_Section):
    """What is remembered between the turns of an `x-session-id`: the strictest class, and placeholders of masked
    values. It is held in memory alone."""

    ttl_s: float = Field(3_600, gt=0, description="Silence after which a session is forgotten.")
    limit: int = Field(100_000, ge=1, description="Sessions remembered; the longest silent one makes room.")


class TimeoutSettings(_Section):
    """The three limits on a backend; there is none on the whole answer."""

    connect_s: float = Field(2, gt=0, description="Until the connection stands.")
    first_token_s: float = Field(30, gt=0, description="From sending the request to the first content.")
    first_token_ratio: float = Field(
        2,
        ge=1,
        le=100,
        description="How many times the first token that its decision predicted an agent that reports may take, where "
        "that is more: one that grows hot meanwhile has half its speed left.",
    )
    first_token_most_s: float = Field(
        600, gt=0, description="Most of that, whatever agents report; OpenAI's clients have gone by then."
    )
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


class OutlierSettings(_Section):
    """When a backend is left alone although it never failed three times in a row."""

    failure_ratio: float = Field(0.5, gt=0, le=1, description="Share of failures in ten seconds that opens a breaker.")
    least_attempts: int = Field(10, ge=1, description="Attempts in ten seconds below which no share is looked at.")
    frozen_after_s: float = Field(
        10, gt=0, description="Silence of all its open streams together after which it gets no new ones."
    )


class ListenerTlsSettings(_Section):
    """Certificate of this router, in PEM; files that are replaced are used within seconds, without a restart."""

    cert_file: Path = Field(description="Certificate, and what chains it to its authority.")
    key_file: Path = Field(description="Its private key.")
    client_ca_file: Path | None = Field(
        default=None, description="Authorities of clients: nobody comes in without a certificate by one of them."
    )


class BackendTlsSettings(CertificateSettings):
    """How backends with https addresses are reached; files that are replaced are used within seconds."""


class ClientSettings(CertificateSettings):
    """How `isthmus` commands reach the router of these settings."""

    api_key_file: Path | None = Field(
        default=None, description="File with the key that commands send; unset: what the router left in this home."
    )


class StateSettings(RedisSettings):
    """Where fleet state lives."""

    kind: Literal["memory", "redis"] = Field("memory", description="memory: one router; redis: many.")
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
    total_bytes: int | None = Field(
        default=1024 * 1024 * 1024,
        ge=1024,
        description="Size of all files together at which the oldest go; null: none ever does.",
    )
    sync: Sync = Field(
        Sync.ALWAYS,
        description="When records are forced to the disk: always (before they count as kept), second (once a second) "
        "or never (when the system does).",
    )

    @model_validator(mode="after")
    def _two_files_fit(self) -> AuditSettings:
        if self.total_bytes is not None and self.total_bytes < 2 * self.file_bytes:
            raise ValueError("total_bytes must hold two files of file_bytes at least")
        return self


class RouterTracingSettings(TracingSettings):
    """Traces, and what of a caller's trace goes on to clouds."""

    riders_to_clouds: bool = Field(
        False,
        description="Send tracestate and baggage of callers to clouds too, and with tracing off their traceparent. "
        "They are text that is not scanned; edge agents always get them.",
    )


class RouterSettings(SectionSettings, section="router"):
    """Section `router`."""

    host: str = Field("127.0.0.1", description="Address to listen on; beyond loopback, keys are required.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0: any free one.")
    workers: int = Field(1, ge=1, le=256, description="Processes that serve the port together.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    keys: tuple[KeySettings, ...] = Field(
        default=(), description="Known API keys; without any here or in keys_file, no key is asked for."
    )
    keys_file: Path | None = Field(
        default=None, description="Register of the keys that commands make; unset: $ISTHMUS_HOME/router-keys.json."
    )
    limits: LimitSettings = Field(default_factory=LimitSettings, description="Bounds on what clients send.")
    policy: PolicySettings = Field(default_factory=PolicySettings, description="The rules of every decision.")
    scan: ScanSettings = Field(default_factory=ScanSettings, description="Bounds on the privacy scan.")
    sessions: SessionSettings = Field(
        default_factory=SessionSettings, description="What is remembered between the turns of a conversation."
    )
    aliases: dict[ModelId, ModelId] = Field(
        default_factory=dict, description="Names that clients may use for a model: alias to model id."
    )
    timeouts: TimeoutSettings = Field(default_factory=TimeoutSettings, description="Limits on a backend.")
    retry: RetrySettings = Field(default_factory=RetrySettings, description="How much load failover may add.")
    outliers: OutlierSettings = Field(
        default_factory=OutlierSettings, description="When a failing or frozen backend is left alone."
    )
    tls: ListenerTlsSettings | None = Field(default=None, description="Serve over TLS; unset: over plain HTTP.")
    backend_tls: BackendTlsSettings = Field(
        default_factory=BackendTlsSettings, description="TLS to backends with https addresses."
    )
    client: ClientSettings = Field(default_factory=ClientSettings, description="How commands reach this router.")
    clouds: tuple[CloudSettings, ...] = Field(default=(), description="Cloud endpoints.")
    edges: tuple[EdgeBackendSettings, ...] = Field(default=(), description="Edge agents that do not report.")
    edge_api_key_file: Path | None = Field(
        default=None, description="File with the key that agents which report themselves want."
    )
    capacity_interval_s: float = Field(1.0, gt=0, description="How often clouds and static edges are asked.")
    state: StateSettings = Field(default_factory=StateSettings, description="Where fleet state lives.")
    devices: DeviceSettings = Field(default_factory=DeviceSettings, description="Devices that joined.")
    audit: AuditSettings = Field(default_factory=AuditSettings, description="Where the record of requests goes.")
    tracing: RouterTracingSettings = Field(
        default_factory=RouterTracingSettings, description="Where traces go (OpenTelemetry)."
    )
    keepalive_s: float = Field(15, ge=0, description="Silence after which a stream gets a comment line; 0: never.")
    drain_limit_s: float = Field(30, ge=0, description="Time that running requests get at shutdown.")

    def base_url(self) -> str:
        """Where a program on this machine reaches the router."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104 - compared, not bound
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    def policy_base(self) -> PolicyDefaults:
        """The policy's defaults; how long a line may be is bounded by what the timeouts allow where nothing is said."""
        policy, timeouts = self.policy, self.timeouts
        stream_s = policy.stream_wait_limit_s or timeouts.first_token_s
        whole_s = policy.whole_wait_limit_s or timeouts.answer_s or None
        return policy.model_copy(update={"stream_wait_limit_s": stream_s, "whole_wait_limit_s": whole_s})

    @model_validator(mode="after")
    def _ids_are_unique(self) -> RouterSettings:
        ids = [*(cloud.id for cloud in self.clouds), *(edge.id for edge in self.edges)]
        if len(set(ids)) != len(ids):
            raise ValueError("two backends have the same id")
        return self
