"""Takes the address that a process will listen on, or says which setting to change."""

from __future__ import annotations

import errno
import os
import socket

from shared.errors import SettingsError


def bind(host: str, port: int, *, setting: str) -> socket.socket:
    """A listening socket.

    Raises:
        SettingsError: the address is taken or not allowed; `param` is `setting`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        reason = "is already in use" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0).lower()
        raise SettingsError(f"Port {port} on {host}: {reason}. Choose another with {setting}.", param=setting) from None
    listener.setblocking(False)
    return listener
