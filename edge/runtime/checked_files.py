"""Opens what an engine process is to load, and checks it: what the files say each time, their hashes once per identity.

What was checked is what is handed over: the same open files.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from edge.packages.adapters.adapter import Adapter, check_adapter, opened_adapter
from edge.packages.adapters.file import Base
from edge.packages.adapters.store import base_in
from edge.packages.formats.files import Files
from edge.packages.package import FileIdentity, Package, check_contents, check_file, opened_package
from edge.runtime.plan import StaticPlan
from shared.errors import AdapterRejected, TrustError

OpenAdapters = tuple[tuple[str, int], ...]
"""Digest and open file of each."""


class CheckedFiles:
    """Remembers what it has hashed already."""

    def __init__(self, *, rank_limit: int) -> None:
        self._rank_limit = rank_limit
        self._hashed: dict[str, FileIdentity] = {}
        self._known_adapters: set[tuple[str, FileIdentity]] = set()
        self._base: Base | None = None

    @contextlib.asynccontextmanager
    async def opened(self, plan: StaticPlan) -> AsyncIterator[tuple[Files, OpenAdapters]]:
        """The files of `plan`, open for the block.

        Raises:
            AdapterRejected: an adapter is not what was registered, or not for this model; the model itself is fine.
            TrustError: the model is not what it was.
        """
        # When the check is cancelled, closing the files ends the thread that still reads them.
        with contextlib.ExitStack() as stack:
            files = stack.enter_context(opened_package(plan.package))
            await asyncio.to_thread(self._check, plan.package, files)
            adapters = []
            for adapter in plan.adapters:
                with _as_rejection():
                    fd = stack.enter_context(opened_adapter(adapter))
                    await asyncio.to_thread(self._check_adapter, plan.package, adapter, fd)
                adapters.append((adapter.digest, fd))
            yield files, tuple(adapters)

    def _check(self, package: Package, files: Files) -> None:
        identities = {name: FileIdentity.of(files.descriptor(name)) for name in files.names}
        check_contents(package, files)
        if identities != self._hashed:
            for file in package.manifest.files:
                check_file(file, files.descriptor(file.path))
            self._hashed = identities

    def _check_adapter(self, package: Package, adapter: Adapter, fd: int) -> None:
        now = (adapter.digest, FileIdentity.of(fd))
        if now in self._known_adapters:
            return
        if self._base is None or self._base.digest != package.digest:
            self._base = base_in(package)
        check_adapter(adapter, fd, self._base, rank_limit=self._rank_limit)
        self._known_adapters.add(now)


@contextlib.contextmanager
def _as_rejection() -> Iterator[None]:
    try:
        yield
    except AdapterRejected:
        raise
    except TrustError as error:
        raise AdapterRejected(error.message, param=error.param, code=error.code) from None
