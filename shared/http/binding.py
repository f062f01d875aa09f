"""Takes the address that a process will listen on, or says which setting to change."""

from __future__ import annotations

import errno
import os
import socket

from shared.errors import SettingsError


def bind(host: str, port: int, *, setting: str, shared: bool = False, listening: bool = True) -> socket.socket:
    """A listening socket; `shared` lets other processes of this user take the same address, and without `listening` it
    only holds the address.

    Raises:
        SettingsError: the address is taken or not allowed; `param` is `setting`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if listening is False:
                _refuse_taken(family, host, port)
        listener.bind((host, port))
        if listening:
            listener.listen(1024)
    except OSError as error:
        listener.close()
        in_use = error.errno == errno.EADDRINUSE
        reason = " is already in use" if in_use else f": {os.strerror(error.errno or 0).lower()}"
        raise SettingsError(f"Port {port} on {host}{reason}. Choose another with {setting}.", param=setting) from None
    listener.setblocking(False)
    return listener


def _refuse_taken(family: int, host: str, port: int) -> None:
    """Another program that shares its port with everyone must not get half of our connections."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
