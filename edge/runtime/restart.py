"""Decides whether and when an engine that ended is started again."""

from __future__ import annotations

from dataclasses import dataclass

from shared.backoff import full_jitter_s


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Limits of restarting. A run of `stable_s` or longer forgets the failures before it."""

    base_s: float = 0.25
    cap_s: float = 30.0
    """Longest wait after a start that failed."""
    crash_cap_s: float = 0.75
    """Longest wait after a process that was ready: starting works, so that whoever waits for it does so in vain."""
    stable_s: float = 60.0
    refusals_limit: int = 3
    """Starts in a row that the engine may refuse (it may have been short of memory) before that is final."""


@dataclass(frozen=True, slots=True)
class History:
    """Failures in a row: all of them, and those that were refusals at load."""

    failures: int = 0
    refusals: int = 0
    was_ready: bool = False
    """Whether the last one served before it ended."""

    def after_exit(self, ran_s: float, policy: RestartPolicy) -> History:
        """After a process that was ready has ended."""
        return History(failures=1 if ran_s >= policy.stable_s else self.failures + 1, was_ready=True)

    def after_failed_start(self, *, refused: bool) -> History:
        """After a process that never became ready."""
        return History(self.failures + 1, self.refusals + 1 if refused else 0)


def wait_before_restart_s(history: History, policy: RestartPolicy, *, fraction: float) -> float | None:
    """Seconds to wait before the next start; None when there shall be none. `fraction` is uniform in [0, 1)."""
    if history.refusals >= policy.refusals_limit:
        return None
    cap_s = min(policy.cap_s, policy.crash_cap_s) if history.was_ready else policy.cap_s
    return full_jitter_s(history.failures - 1, base_s=policy.base_s, cap_s=cap_s, fraction=fraction)
