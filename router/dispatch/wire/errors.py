"""Why a backend could not be asked, or did not answer: all that the wire raises, whatever library noticed it."""

from __future__ import annotations


class WireError(Exception):
    """The request came to nothing."""


class Unsendable(WireError):
    """The request itself cannot be written: its address or a header. Nothing was sent."""


class Unreachable(WireError):
    """No connection could be made: nobody listens, the name is not known, or the certificate is not trusted."""


class ConnectTimeout(WireError):
    """No connection could be made in time."""


class Cut(WireError):
    """The connection ended before the answer did, or what came over it is no HTTP."""


class TooLong(WireError):
    """The answer is longer than the caller takes."""
