"""Checks before anything is started: what is certain to fail is said in one line, while nothing runs yet."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from shared import settings
from shared.errors import SettingsError
from shared.extras import extra_of
from shared.http.binding import bind
from shared.launcher.settings import Wiring
from shared.launcher.tiers import Tier

SOCKET_NAME = "up.sock"
_SOCKET_PATH_BYTES = 107
COMPILERS = ("c++", "g++", "clang++")


def check(tiers: Iterable[Tier], wiring: Wiring, folder: Path, config: Path | None) -> None:
    """Check installation, settings, compiler, disk and ports of `tiers`.

    Raises:
        SettingsError: with what to do about it.
    """
    chosen = list(tiers)
    control_socket(folder)
    for tier in chosen:
        check_installed(tier)
    for tier in chosen:
        settings.check(tier.name, config)
    if any(tier.needs_compiler for tier in chosen):
        check_compiler()
    check_disk(folder, sum(tier.first_start_bytes for tier in chosen if not is_prepared(tier, wiring)))
    taken: dict[int, str] = {}
    for tier in chosen:
        address = wiring.addresses[tier.name]
        if address.port in taken:
            raise SettingsError(
                f"{tier.name}.port and {taken[address.port]}.port are both {address.port}.", param=f"{tier.name}.port"
            )
        taken[address.port] = tier.name
        bind(address.host, address.port, setting=f"{tier.name}.port").close()


def control_socket(folder: Path) -> Path:
    """Where the control socket of a run in `folder` is.

    Raises:
        SettingsError: the name is too long for the address of a socket.
    """
    path = folder / SOCKET_NAME
    if len(bytes(path)) > _SOCKET_PATH_BYTES:
        raise SettingsError(
            f"The path of the control socket {path} is longer than {_SOCKET_PATH_BYTES} bytes. "
            "Set up.run_dir to a shorter one.",
            param="up.run_dir",
        )
    return path


def is_prepared(tier: Tier, wiring: Wiring) -> bool:
    """Whether an earlier start already made what `tier` needs."""
    store = wiring.stores.get(tier.name)
    return store is None or store.is_file() or (store.is_dir() and any(store.iterdir()))


def check_installed(tier: Tier) -> None:
    """The tier's packages are here."""
    extra = extra_of(tier.name)
    if missing := ", ".join(each.requirement for each in extra.missing):
        without = "" if tier.name == "router" else ", or leave it out with --tiers"
        raise SettingsError(
            f"The {tier.name} tier is not installed (missing: {missing}). Run: {extra.remedy}{without}.",
            param="up.tiers",
        )


def check_compiler() -> None:
    """A C++ compiler is here: vLLM's CPU build compiles sampling kernels at the first request."""
    if not any(shutil.which(name) for name in COMPILERS):
        raise SettingsError(
            "The cloud tier needs a C++ compiler (g++) on this machine. Install it (Debian: apt install g++), "
            "or leave the cloud out with --tiers edge.",
            param="up.tiers",
        )


def check_disk(folder: Path, needed_bytes: int) -> None:
    """`folder` has room for models, checkpoint and logs."""
    floor_bytes = 64 * 1024**2
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes + floor_bytes:
        raise SettingsError(
            f"The disk of {folder} has {free_bytes // 1024**2} MiB free; "
            f"{(needed_bytes + floor_bytes) // 1024**2} MiB are needed. Free some, or set ISTHMUS_HOME elsewhere.",
            param="up.run_dir",
        )
