"""Opens what an engine process is to load, and checks it: what the files say each time, their hashes once per identity.

What was checked is what is handed over: the same open files.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from edge.packages.adapters.adapter import Adapter, check_adapter, opened_adapter
from edge.packages.adapters.file import Base
from edge.packages.adapters.store import base_in
from edge.packages.formats.files import Files
from edge.packages.package import FileIdentity, Package, check_contents, check_file, opened_package
from edge.runtime.plan import StaticPlan
from edge.scheduling.speculation import SpeculationMode
from shared.errors import AdapterRejected, TrustError

OpenAdapters = tuple[tuple[str, int], ...]
"""Digest and open file of each."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Everything that a process is to load; `draft` is the open file of the draft model, where the plan runs one."""

    files: Files
    adapters: OpenAdapters
    draft: int | None


class CheckedFiles:
    """Remembers what it has hashed already."""

    def __init__(self, *, rank_limit: int) -> None:
        self._rank_limit = rank_limit
        self._hashed: dict[Path, dict[str, FileIdentity]] = {}
        self._known_adapters: set[tuple[str, FileIdentity]] = set()
        self._base: Base | None = None

    @contextlib.asynccontextmanager
    async def opened(self, plan: StaticPlan) -> AsyncIterator[Opened]:
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
            yield Opened(files, tuple(adapters), await self._draft(plan, stack))

    async def _draft(self, plan: StaticPlan, stack: contextlib.ExitStack) -> int | None:
        if plan.speculation is not SpeculationMode.DRAFT or plan.drafting is None:
            return None
        package = plan.drafting.package
        files = stack.enter_context(opened_package(package))
        await asyncio.to_thread(self._check, package, files)
        return files.descriptor(package.manifest.entry)

    def _check(self, package: Package, files: Files) -> None:
        identities = {name: FileIdentity.of(files.descriptor(name)) for name in files.names}
        check_contents(package, files)
        if identities != self._hashed.get(package.folder):
            for file in package.manifest.files:
                check_file(file, files.descriptor(file.path))
            self._hashed[package.folder] = identities

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
