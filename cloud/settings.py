"""Settings of the cloud tier: which models run, on what hardware, within which limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_serializer,
    field_validator,
    model_validator,
)

from shared.http.intake import DEFAULT_LIMIT_BYTES
from shared.keys import ApiKey, Scope
from shared.settings import SectionSettings
from shared.tracing.settings import TracingSettings

PACKAGE_PREFIX = "package:"
CPU_KV_CACHE_BYTES = 512 * 1024 * 1024
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
MODEL_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$"
ENGINE_SETTINGS = {
    "model": "source",
    "tokenizer": "source",
    "served_model_name": "model_id",
    "max_model_len": "context_tokens",
    "max_num_seqs": "max_num_seqs",
    "kv_cache_memory_bytes": "kv_cache_bytes",
    "dtype": "dtype",
    "enforce_eager": "enforce_eager",
    "enable_auto_tool_choice": "tool_call_parser",
    "tool_call_parser": "tool_call_parser",
    "enable_lora": "adapters",
    "max_loras": "adapters.count",
    "max_cpu_loras": "adapters.count",
    "max_lora_rank": "adapters.rank_limit",
}
"""Engine arguments that have a setting of their own, so that each fact is said in one place."""

ModelId = Annotated[str, StringConstraints(pattern=MODEL_ID_PATTERN)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AutoscalingSettings(_Section):
    """How many replicas of one model run, and how much work each may hold. Every limit is finite."""

    min_replicas: int = Field(1, ge=0, description="Replicas kept without load; 0 lets the model scale to zero.")
    max_replicas: int = Field(1, ge=1, description="Most replicas under load.")
    target_ongoing_requests: float = Field(16, gt=0, description="Requests per replica that autoscaling aims at.")
    max_ongoing_requests: int = Field(64, ge=1, description="Requests one replica takes at the same time.")
    max_queued_requests: int = Field(128, ge=1, description="Requests that wait beyond that; more get 429.")
    kv_ceiling_ratio: float = Field(0.85, gt=0, le=1, description="Share of its KV cache a replica shall use at most.")
    upscale_delay_s: float = Field(5, ge=0, description="Load must stay high this long before replicas are added.")
    downscale_delay_s: float = Field(300, ge=0, description="Load must stay low this long before one is removed.")
    downscale_to_zero_delay_s: float = Field(600, ge=0, description="Idle time before the last replica is removed.")
    look_back_period_s: float = Field(30, gt=10, description="Window over which load, told every 10 s, is averaged.")

    @model_validator(mode="after")
    def _limits_agree(self) -> AutoscalingSettings:
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas is over max_replicas")
        if self.target_ongoing_requests > self.max_ongoing_requests:
            raise ValueError("target_ongoing_requests is over max_ongoing_requests, so load could never reach it")
        return self


class KeySettings(_Section):
    """One API key, known by its hash."""

    name: str = Field(min_length=1, max_length=64, description="Name of the key for people.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Hex SHA-256 of the key.")
    scopes: frozenset[Scope] = Field(default=frozenset({Scope.INFERENCE}), description="What the key may do.")

    @field_serializer("scopes")
    def _in_order(self, scopes: frozenset[Scope]) -> list[str]:
        return sorted(scopes)

    def key(self) -> ApiKey:
        """The key as requests are held against it."""
        return ApiKey(self.name, self.sha256, self.scopes)


class AdapterSettings(_Section):
    """LoRA adapters of one model, served as `model:adapter`."""

    folder: str | None = Field(
        default=None,
        pattern="^/",
        description="Where adapters are registered; unset: cloud-adapters in the Isthmus home, on a cluster the folder "
        "adapters beside the checkpoints, which every node sees.",
    )
    trust: str | None = Field(
        default=None,
        pattern="^/",
        description="Folder of trusted public keys; unset: trust in the Isthmus home. With any key there, adapters "
        "must be signed.",
    )
    count: int = Field(4, ge=1, le=256, description="Adapters that a replica keeps loaded and may batch together.")
    rank_limit: Literal[8, 16, 32, 64, 128, 256] = Field(16, description="Highest rank of any module.")


class ModelSettings(_Section):
    """One served model."""

    model_id: ModelId = Field(description="Name that clients send as `model`.")
    source: str = Field(
        min_length=1,
        description="Checkpoint folder, hub id, or `package:NAME`: prepared from the edge package NAME, same weights.",
    )
    digest: str | None = Field(
        default=None,
        pattern=r"^sha256:[0-9a-f]{64}$",
        description="Identity of the weights, equal to the edge tier's; filled in for a prepared checkpoint.",
    )
    tokenizer: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="Fingerprint of tokenizer and chat template, equal to the edge tier's; filled in for a prepared "
        "checkpoint.",
    )
    context_tokens: int = Field(4096, ge=16, description="Context of one request, prompt and output together.")
    max_num_seqs: int = Field(32, ge=1, description="Sequences decoded in one batch.")
    kv_cache_bytes: int | None = Field(
        default=None,
        ge=1024 * 1024,
        description="KV cache of one replica; unset: 512 MiB on CPU, on GPU what the engine finds free.",
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] | None = Field(
        default=None,
        description="Type of the arithmetic; unset: float32 on CPU, where near ties between tokens then fall as on the "
        "edge tier, else bfloat16.",
    )
    enforce_eager: bool | None = Field(
        default=None, description="Skip graph compilation; unset: true on CPU, where it triples the start, else false."
    )
    routing: Literal["balanced", "prefix"] = Field(
        "balanced",
        description="Which replica takes a request: the less busy of two, or the one whose cache knows most of the "
        "prompt while load is even; the latter pays where many requests share a long beginning.",
    )
    threads: int = Field(2, ge=1, description="CPU threads (and CPUs reserved) of one replica's engine.")
    tool_call_parser: str | None = Field(default=None, description="Enables tool calls with this parser of vLLM.")
    adapters: AdapterSettings | None = Field(default=None, description="Set to serve LoRA adapters; costs speed.")
    engine_kwargs: dict[str, Any] = Field(default_factory=dict, description="Further vLLM engine arguments.")
    autoscaling: AutoscalingSettings = Field(default_factory=AutoscalingSettings)

    @field_validator("engine_kwargs")
    @classmethod
    def _said_once(cls, engine_kwargs: dict[str, Any]) -> dict[str, Any]:
        for name, setting in ENGINE_SETTINGS.items():
            if name in engine_kwargs:
                raise ValueError(f"{name} is set by {setting}")
        return engine_kwargs

    @property
    def package(self) -> str | None:
        """Name of the edge package that the checkpoint is prepared from, if it is."""
        return self.source.removeprefix(PACKAGE_PREFIX) if self.source.startswith(PACKAGE_PREFIX) else None


class AcceleratorSettings(_Section):
    """Hardware that the engines run on."""

    kind: Literal["cpu", "gpu"] = Field("cpu", description="cpu needs the CPU build of vLLM.")
    type: str | None = Field(default=None, description="GPU model as Ray names it, such as L4 or A100-80G.")

    @model_validator(mode="after")
    def _type_needs_gpu(self) -> AcceleratorSettings:
        if self.type is not None and self.kind != "gpu":
            raise ValueError("type is allowed only with kind gpu")
        return self


class IngressSettings(_Section):
    """The HTTP side before the engines."""

    replicas: int = Field(1, ge=1, description="Ingress replicas; two or more survive the loss of one.")
    max_ongoing_requests: int = Field(512, ge=1, description="Requests one ingress replica holds.")
    max_queued_requests: int = Field(512, ge=1, description="Requests that wait for an ingress replica.")
    body_limit_bytes: int = Field(DEFAULT_LIMIT_BYTES, ge=1024, description="Largest request body.")
    proxy: Literal["haproxy", "serve"] = Field(
        "serve", description="What takes connections before the ingress: Ray Serve's own proxy in Python, or HAProxy."
    )
    streams: Literal["direct", "relayed"] = Field(
        "relayed",
        description="How tokens come from a replica: through Ray's calls, or on its own connection to the ingress.",
    )


class LifeSettings(_Section):
    """How fast faults are found and how slowly work is ended."""

    health_check_period_s: float = Field(2, gt=0, description="Time between health checks of a replica.")
    health_check_timeout_s: float = Field(10, gt=0, description="Silence after which a replica counts as dead.")
    drain_s: float = Field(60, ge=0, description="Time that running requests get when a replica or the tier stops.")
    start_timeout_s: float = Field(900, gt=0, description="Time until all models must be ready.")
    retry_after_s: int = Field(2, ge=1, description="Retry-After of refused requests.")
    cold_retry_after_s: int = Field(
        30, ge=1, description="Retry-After where no replica runs: about what a start takes."
    )
    keepalive_s: float = Field(
        15, ge=0, description="Streams that wait for their first token get a comment this often; 0: none."
    )


class RaySettings(_Section):
    """The Ray cluster below."""

    address: str | None = Field(default=None, description="Running cluster to join; unset: a private local one.")
    temp_dir: str | None = Field(
        default=None, description="Absolute folder for sockets and logs; short, for socket paths end at 107 bytes."
    )
    num_cpus: int | None = Field(default=None, ge=1, description="Logical CPUs; unset: what the models reserve.")
    object_store_bytes: int = Field(128 * 1024 * 1024, ge=80 * 1024 * 1024, description="Shared memory of Ray.")
    dashboard: bool = Field(default=False, description="Serve Ray's dashboard, on loopback.")
    metrics_port: int | None = Field(
        default=None, ge=1, le=65535, description="Prometheus port of Ray and vLLM; unset: a free one."
    )


def _default_models() -> tuple[ModelSettings, ...]:
    return (ModelSettings(model_id="smollm2-135m-instruct", source="package:smollm2-135m-instruct"),)


class CloudSettings(SectionSettings, section="cloud"):
    """Section `cloud` of the settings file."""

    host: str = Field("127.0.0.1", description="Address of the OpenAI API; beyond loopback it needs keys.")
    port: int = Field(8000, ge=1, le=65535, description="Port of the OpenAI API.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    models: tuple[ModelSettings, ...] = Field(default_factory=_default_models, min_length=1)
    accelerator: AcceleratorSettings = Field(default_factory=AcceleratorSettings)
    ingress: IngressSettings = Field(default_factory=IngressSettings)
    life: LifeSettings = Field(default_factory=LifeSettings)
    keys: tuple[KeySettings, ...] = Field(default=(), description="API keys; none is allowed on loopback only.")
    tracing: TracingSettings = Field(default_factory=TracingSettings, description="Where traces go (OpenTelemetry).")
    ray: RaySettings = Field(default_factory=RaySettings)

    @field_validator("models")
    @classmethod
    def _names_differ(cls, models: tuple[ModelSettings, ...]) -> tuple[ModelSettings, ...]:
        if len({model.model_id for model in models}) < len(models):
            raise ValueError("two models have the same model_id")
        return models

    @field_validator("keys")
    @classmethod
    def _keys_differ(cls, keys: tuple[KeySettings, ...]) -> tuple[KeySettings, ...]:
        if len({key.name for key in keys}) < len(keys):
            raise ValueError("two keys have the same name")
        return keys

    @model_validator(mode="after")
    def _reachable_with_keys_only(self) -> CloudSettings:
        if self.host not in _LOOPBACK and not self.keys:
            raise ValueError("host is not a loopback address: set keys, or bind 127.0.0.1")
        return self


class AppArgs(_Section):
    """What `cloud.app:build` needs of the settings: the `args` of the application in a Serve config."""

    models: tuple[ModelSettings, ...] = Field(min_length=1)
    accelerator: AcceleratorSettings = Field(default_factory=AcceleratorSettings)
    ingress: IngressSettings = Field(default_factory=IngressSettings)
    life: LifeSettings = Field(default_factory=LifeSettings)
    keys: tuple[KeySettings, ...] = ()
    tracing: TracingSettings = Field(default_factory=TracingSettings)
    only_loopback: Literal[True] | None = Field(default=None, description="Set for a private cluster of one machine.")

    @classmethod
    def of(cls, settings: CloudSettings, models: tuple[ModelSettings, ...] | None = None) -> AppArgs:
        """The arguments for `settings`, with `models` (whose sources are resolved) in place of its own."""
        return cls(
            models=models or settings.models,
            accelerator=settings.accelerator,
            ingress=settings.ingress,
            life=settings.life,
            keys=settings.keys,
            tracing=settings.tracing,
        )


class OpsModel(_Section):
    """The facts of one model that hold whether or not a replica runs."""

    model_id: ModelId
    digest: str | None = None
    tokenizer: str | None = None
    context_tokens: int
    max_num_seqs: int
    tool_call_parser: str | None = None
    adapters: AdapterSettings | None = None


class OpsArgs(_Section):
    """What `cloud.capacity:build` needs: the `args` of the capacity application in a Serve config."""

    models: tuple[OpsModel, ...] = Field(min_length=1)
    only_loopback: Literal[True] | None = None

    @classmethod
    def of(cls, args: AppArgs) -> OpsArgs:
        """The arguments that go with those of the OpenAI application."""
        models = tuple(OpsModel(**m.model_dump(include=set(OpsModel.model_fields))) for m in args.models)
        return cls(models=models, only_loopback=args.only_loopback)
