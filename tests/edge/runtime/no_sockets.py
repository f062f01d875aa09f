"""Runs a program under a kernel filter that kills it the moment it makes an internet socket, whatever code does so.

    python no_sockets.py FILE [ARGUMENT…]

The filter (seccomp) is inherited by every thread and child and cannot be taken off.
"""

from __future__ import annotations

import ctypes
import platform
import runpy
import struct
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_SOCKET = {"x86_64": 41, "aarch64": 198}
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_KILL, _ALLOW = 0x80000000, 0x7FFF0000
_NUMBER_AT, _FIRST_ARGUMENT_AT = 0, 16
_INET, _INET6 = 2, 10


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def forbid_internet_sockets() -> None:
    """Install the filter for this process and all that it starts."""
    number = _SOCKET[platform.machine()]
    steps = [
        (_LOAD, 0, 0, _NUMBER_AT),
        (_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_EQUAL, 1, 0, _INET),
        (_EQUAL, 0, 1, _INET6),
        (_RETURN, 0, 0, _KILL),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code)
    program = _Program(len(steps), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program)
    ):
        raise OSError(ctypes.get_errno(), "the filter cannot be installed")


if __name__ == "__main__":
    forbid_internet_sockets()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
