"""Follows a policy file: a change that is valid as a whole comes into force at once, any other changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

from router.policy.model import Policy
from router.privacy.recognisers.model import Recogniser
from router.rulebook.defaults import PolicyDefaults
from router.rulebook.document import PolicyDocument
from router.rulebook.load import Vocabulary, parse, policy_of, read, read_whole
from router.rulebook.week import week_minute
from shared import logs
from shared.clock import Clock
from shared.errors import SettingsError

OnReload = Callable[[str, Policy], None]
"""Told the outcome of a reload, `applied`, `unchanged` or `refused`, and the policy in force after it."""
LookFor = Callable[[Sequence[Recogniser]], None]
"""Given what the policy that comes into force looks for, before anything is decided by it."""


class PolicyFollower:
    """The policy in force. Without a file it is the one of the settings, for ever."""

    def __init__(
        self,
        path: Path | None,
        base: PolicyDefaults,
        known: Vocabulary,
        clock: Clock,
        *,
        on_reload: OnReload = lambda outcome, policy: None,
        look_for: LookFor = lambda own: None,
    ) -> None:
        """Raises: SettingsError: there is no valid policy to begin with."""
        self._path = path
        self._base = base
        self._known = known
        self._clock = clock
        self._on_reload = on_reload
        self._log = logs.get("policy")
        self._wanted = asyncio.Event()
        self._judged: bytes | None = None if path is None else read(path, only_files=True)
        self._fault: str | None = None
        self._look_for = look_for
        self._policy, own = self._read(self._judged)
        look_for(own)
        self._zone = ZoneInfo(self._policy.time_zone)
        self._week_minute: tuple[int, ZoneInfo, int] | None = None

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._policy

    @property
    def path(self) -> Path | None:
        """The file that is followed."""
        return self._path

    @property
    def fault(self) -> str | None:
        """Why the file as it is now is not in force; None while it is."""
        return self._fault

    def week_minute(self) -> int:
        """Now, as the policy's rules read it."""
        minute = int(self._clock.unix_s() // 60)
        if self._week_minute is None or self._week_minute[:2] != (minute, self._zone):
            self._week_minute = (minute, self._zone, week_minute(minute * 60, self._zone))
        return self._week_minute[2]

    def reload_soon(self) -> None:
        """Read the file again without waiting for the next look, as after SIGHUP."""
        self._wanted.set()

    async def run(self, interval_s: float) -> None:
        """Look at the file once in `interval_s`, and whenever it is asked for."""
        while self._path is not None:
            asked = self._wanted.is_set()
            self._wanted.clear()
            await self.look(asked=asked)
            await self._pause(interval_s)

    async def look(self, *, asked: bool = False) -> None:
        """Read the file, and take it over if it changed and is valid; `asked` reports an unchanged one too."""
        if self._path is None:
            return
        try:
            raw = await asyncio.to_thread(read, self._path, only_files=True)
            if raw == self._judged:
                if asked:
                    self._on_reload("unchanged", self._policy)
                return
            self._judged = raw
            policy, own = await asyncio.to_thread(self._read, raw)
        except SettingsError as error:
            self._refuse(error)
            return
        self._look_for(own)
        self._fault, self._policy, self._zone = None, policy, ZoneInfo(policy.time_zone)
        self._log.info("policy_applied", digest=policy.digest, rules=len(policy.rules))
        self._on_reload("applied", policy)

    def _refuse(self, error: SettingsError) -> None:
        """Keep the policy in force, and say why once."""
        if error.param == "router.policy.file":  # it may not have been read at all
            self._judged = None
        if error.message != self._fault:
            self._fault = error.message
            self._log.error("policy_refused", error=error.message, digest_in_force=self._policy.digest)
            self._on_reload("refused", self._policy)

    def _read(self, raw: bytes | None) -> tuple[Policy, tuple[Recogniser, ...]]:
        """The policy in `raw`, and what it looks for."""
        if raw is None or self._path is None:
            return policy_of(PolicyDocument(), self._base, self._known), ()
        return read_whole(parse(raw, self._path), self._base, self._known, self._path, raw)

    async def _pause(self, interval_s: float) -> None:
        """Return after the interval, or as soon as a reload is asked for."""
        timer = asyncio.ensure_future(self._clock.sleep(interval_s))
        wanted = asyncio.ensure_future(self._wanted.wait())
        try:
            await asyncio.wait({timer, wanted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            wanted.cancel()
