"""Settings of `isthmus up`, and where the tiers it starts will listen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from shared.errors import SettingsError
from shared.extras import extra_of
from shared.http.tls import PinnedTls, TlsFiles
from shared.settings import SectionSettings, home, load_part
from shared.testing.scenarios import Scenario

TierName = Literal["edge", "router", "cloud"]
OptionalTier = Literal["edge", "cloud"]
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - recognised, not bound


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ReadyLimits(_Section):
    """How long each tier may take until it is ready."""

    edge: float = Field(90, gt=0, description="Seconds for the edge agent.")
    router: float = Field(60, gt=0, description="Seconds for the router.")
    cloud: float = Field(600, gt=0, description="Seconds for the cloud tier; a first start compiles and loads vLLM.")

    def of(self, tier: TierName) -> float:
        """The limit of `tier`."""
        return {"edge": self.edge, "router": self.router, "cloud": self.cloud}[tier]


def _installed_tiers() -> tuple[OptionalTier, ...]:
    """Without any, all: what is missing is then said by name."""
    every: tuple[OptionalTier, ...] = ("edge", "cloud")
    return tuple(name for name in every if extra_of(name).is_installed) or every


class RestartSettings(_Section):
    """How a tier that crashed after it was ready is started again."""

    base_s: float = Field(0.5, gt=0, description="Upper bound of the first wait; it doubles with each crash.")
    cap_s: float = Field(30, gt=0, description="Longest wait.")
    stable_s: float = Field(60, gt=0, description="A tier that ran this long starts again with the first wait.")


class HeatSettings(_Section):
    """A simulated device that grows hot by the engine's real work, instead of this machine's own sensors."""

    scenario: Scenario | None = Field(None, description="What happens to the device; none: it is this machine.")
    compression: float = Field(4.0, ge=1, le=100, description="Seconds of the device that pass in one of the clock.")


class UpSettings(SectionSettings, section="up"):
    """Section `up` of the settings file."""

    tiers: Annotated[tuple[OptionalTier, ...], NoDecode] = Field(
        default_factory=_installed_tiers,
        min_length=1,
        description="Tiers beside the router, as a list or separated by commas; default: those that are installed.",
    )
    run_dir: Path | None = Field(None, description="Folder of logs and the control socket; unset: $ISTHMUS_HOME/run.")
    ready_limits_s: ReadyLimits = Field(default_factory=ReadyLimits)
    restart: RestartSettings = Field(default_factory=RestartSettings)
    heat: HeatSettings = Field(default_factory=HeatSettings, description="Simulated heat.")
    stop_limit_s: float = Field(
        45,
        gt=0,
        description="Time that tiers get on Ctrl-C before they are killed: longer than their own drain limits.",
    )
    log_bytes: int = Field(64 * 1024**2, ge=64 * 1024, description="Size at which a tier's log file starts again.")
    kept_runs: int = Field(5, ge=1, description="Folders of earlier runs that are kept.")

    @field_validator("tiers", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        return value

    @property
    def folder(self) -> Path:
        """The run folder in force."""
        return (self.run_dir or home() / "run").absolute()


@dataclass(frozen=True, slots=True)
class Address:
    """Where a tier listens."""

    host: str
    port: int
    scheme: Literal["http", "https"] = "http"

    @property
    def url(self) -> str:
        """Base URL for a client on this machine."""
        host = _WILDCARDS.get(self.host, self.host)
        return f"{self.scheme}://[{host}]:{self.port}" if ":" in host else f"{self.scheme}://{host}:{self.port}"


class _EdgePart(SectionSettings, section="edge"):
    model_config = SettingsConfigDict(extra="ignore")
    host: str = "127.0.0.1"
    port: int = Field(8081, ge=1, le=65535)
    model: str = "smollm2-135m-instruct"
    models_dir: Path | None = None
    router: dict[str, Any] = Field(default_factory=dict)
    thermal: dict[str, Any] = Field(default_factory=dict)


class _ListenerPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    cert_file: Path
    client_ca_file: Path | None = None


class _ClientPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


class _RouterPart(SectionSettings, section="router"):
    model_config = SettingsConfigDict(extra="ignore")
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=1, le=65535)
    keys: tuple[dict[str, Any], ...] = ()
    clouds: tuple[dict[str, Any], ...] = ()
    tls: _ListenerPart | None = None
    client: _ClientPart = Field(default_factory=_ClientPart)


class _CloudPart(SectionSettings, section="cloud"):
    model_config = SettingsConfigDict(extra="ignore")
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=1, le=65535)


@dataclass(frozen=True, slots=True)
class Wiring:
    """How the tiers of one machine find each other, by the file and environment that they read themselves."""

    addresses: Mapping[TierName, Address]
    model: str
    asks_for_key: bool
    variables: Mapping[TierName, Mapping[str, str]]
    """What each child gets in its environment, because its settings leave it open."""
    stores: Mapping[TierName, Path]
    """What preparing a tier makes: once it is there, the tier starts without."""
    router_tls: PinnedTls | None = None
    """How the router is reached where it speaks TLS."""


@dataclass(frozen=True, slots=True)
class SimulatedHeat:
    """What happens to a simulated device, where it writes its sensors, and how fast its time runs."""

    scenario: Scenario
    tree: Path
    compression: float


def wiring_of(
    tiers: tuple[OptionalTier, ...], config: Path | None, *, sensors: Path, simulated: SimulatedHeat | None = None
) -> Wiring:
    """Connect `tiers` and the router: agent to router, router to cloud, and `sensors` as one more sensor tree.

    What the settings say stays; only what they leave open is filled in. A `simulated` device has its own tree in place
    of those that the settings name.

    Raises:
        SettingsError: a part of the settings is not valid, or nobody here could reach the router.
    """
    edge = load_part(_EdgePart, "edge", config)
    router = load_part(_RouterPart, "router", config)
    cloud = load_part(_CloudPart, "cloud", config)
    known: dict[TierName, Address] = {
        "edge": Address(edge.host, edge.port),
        "router": Address(router.host, router.port, "http" if router.tls is None else "https"),
        "cloud": Address(cloud.host, cloud.port),
    }
    own = [str(simulated.tree)] if simulated else [str(root) for root in edge.thermal.get("roots", ["/sys"])]
    variables: dict[TierName, dict[str, str]] = {
        "edge": {"ISTHMUS__EDGE__THERMAL__ROOTS": _json([*own, str(sensors)])},
        "router": {},
        "cloud": {},
    }
    if simulated:
        variables["edge"]["ISTHMUS__EDGE__THERMAL__TIME_SCALE"] = str(simulated.compression)
    if not {"url", "redis"} & edge.router.keys():
        variables["edge"]["ISTHMUS__EDGE__ROUTER__URL"] = known["router"].url
        if router.tls is not None and "tls" not in edge.router:
            variables["edge"] |= _trust(router.tls, router.client)
    if "cloud" in tiers and not router.clouds:
        variables["router"]["ISTHMUS__ROUTER__CLOUDS"] = _json([{"id": "cloud", "url": known["cloud"].url}])
    return Wiring(
        addresses={name: address for name, address in known.items() if name == "router" or name in tiers},
        model=edge.model,
        asks_for_key=bool(router.keys),
        variables=variables,
        stores={
            # The pointer to the version in force, which the package store writes last.
            "edge": (edge.models_dir or home() / "models") / edge.model / "current",
            "cloud": home() / "checkpoints",
        },
        router_tls=None if router.tls is None else _pinned(router.tls, router.client),
    )


def _trust(tls: _ListenerPart, client: _ClientPart) -> dict[str, str]:
    """How the agent reaches a router that speaks TLS: as commands do, or by the router's own certificate."""
    files = {"CA_FILE": client.ca_file or tls.cert_file, "CERT_FILE": client.cert_file, "KEY_FILE": client.key_file}
    return {f"ISTHMUS__EDGE__ROUTER__TLS__{name}": str(path) for name, path in files.items() if path is not None}


def _pinned(tls: _ListenerPart, client: _ClientPart) -> PinnedTls:
    if tls.client_ca_file is not None and client.cert_file is None:
        raise SettingsError(
            "The router wants certificates of its clients (router.tls.client_ca_file), and router.client has none: "
            "nobody here could tell whether it is ready. Set router.client.cert_file and key_file.",
            param="router.client.cert_file",
        )
    shown = TlsFiles(client.cert_file, client.key_file)
    return PinnedTls(TlsFiles(tls.cert_file), shown, setting="router.tls and router.client")


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
