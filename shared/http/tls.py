"""Certificates of a listener and of a client: checked at the start, and used anew whenever the files are replaced.

A listener's context hands every handshake to the newest one that could be loaded, authorities included. A client's
context takes over a new certificate and further authorities; connections that stand are left alone in all cases.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shared import logs
from shared.clock import Clock
from shared.errors import SettingsError

_LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM. `ca_file` holds whom to trust: of a listener, authorities of its clients, and then none comes in
    without a certificate by one of them."""

    cert_file: Path | None = None
    key_file: Path | None = None
    ca_file: Path | None = None

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """What changes when a file is replaced or written."""
        found = []
        for path in (self.cert_file, self.key_file, self.ca_file):
            try:
                status = path.expanduser().stat() if path is not None else None
            except OSError:
                status = None
            found.append((status.st_mtime_ns, status.st_ino) if status is not None else (0, 0))
        return tuple(found)


class ListenerTls:
    """What a listening socket speaks."""

    def __init__(self, files: TlsFiles, *, setting: str) -> None:
        """Raises SettingsError: a file cannot be used; `param` is `setting`."""
        self._newest = _server_context(files, setting)
        self.context = _server_context(files, setting)
        self.context.sni_callback = self._hand_over
        self.following = _Following(files, self._load, setting)
        self._files = files
        self._setting = setting

    def _hand_over(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _load(self) -> None:
        self._newest = _server_context(self._files, self._setting)


class ClientTls:
    """How connections to backends are checked, and what is shown to them."""

    def __init__(self, files: TlsFiles, *, setting: str) -> None:
        """Raises SettingsError: a file cannot be used; `param` is `setting`."""
        self._files = files
        self._setting = setting
        self.context = ssl.create_default_context()
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load()
        self.following = _Following(files, self._load, setting)

    def _load(self) -> None:
        _use(self.context, self._files, self._setting)


class PinnedTls:
    """How a program reaches a listener of this machine whose files it knows: it trusts the certificate that stands in
    them, by whatever name it is reached, and nothing else."""

    def __init__(self, listener: TlsFiles, shown: TlsFiles, *, setting: str) -> None:
        """`listener` names the certificate, `shown` what a listener is shown that wants one."""
        self._listener = listener
        self._shown = shown
        self._setting = setting
        self._stamp: tuple[tuple[int, int], ...] = ()
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """For the certificate as it is now.

        Raises:
            SettingsError: a file cannot be used.
        """
        stamp = self._listener.stamp() + self._shown.stamp()
        if self._context is None or stamp != self._stamp:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            # The listener's own certificate is the end of the chain, whoever signed it.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            _use(context, TlsFiles(ca_file=self._listener.cert_file), self._setting)
            _use(context, TlsFiles(self._shown.cert_file, self._shown.key_file), self._setting)
            self._context, self._stamp = context, stamp
        return self._context


class _Following:
    """Loads files again once they changed; what cannot be loaded is said once, and the last good ones stay."""

    def __init__(self, files: TlsFiles, load: Callable[[], None], setting: str) -> None:
        self._files = files
        self._load = load
        self._setting = setting
        self._stamp = files.stamp()
        self._log = logs.get("tls")

    def look(self) -> None:
        """Look once."""
        stamp = self._files.stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._load()
        except SettingsError as error:
            self._log.warning("certificates_refused", setting=self._setting, error=error.message)
        else:
            self._log.info("certificates_renewed", setting=self._setting)

    async def run(self, clock: Clock) -> None:
        """Look for ever."""
        while True:
            await clock.sleep(_LOOK_S)
            self.look()


def _server_context(files: TlsFiles, setting: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _use(context, files, setting)
    if files.ca_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _use(context: ssl.SSLContext, files: TlsFiles, setting: str) -> None:
    try:
        if files.cert_file is not None:
            key = None if files.key_file is None else files.key_file.expanduser()
            context.load_cert_chain(files.cert_file.expanduser(), key, password=_refuse_password)
        if files.ca_file is not None:
            context.load_verify_locations(files.ca_file.expanduser())
    except OSError as error:  # ssl.SSLError is one
        why = "are no certificate and key that belong together" if isinstance(error, ssl.SSLError) else "cannot be read"
        raise SettingsError(f"The files of {setting} {why}.", param=setting) from None
    except ValueError:
        raise SettingsError(f"The key of {setting} is encrypted.", param=setting) from None


def _refuse_password() -> str:
    raise ValueError("encrypted")
