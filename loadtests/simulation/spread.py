"""Spreads a simulation over a Ray cluster, one task a policy: a sweep of variants takes as long as the slowest."""

from __future__ import annotations

from typing import Any

from loadtests.simulation.command import day_of
from loadtests.simulation.day import Plan
from router.policy.model import Policy
from shared.errors import IsthmusError, SettingsError

_LOCAL = "local"


def play_on_ray(plan: Plan, policies: dict[str, Policy], address: str) -> dict[str, dict[str, Any]]:
    """The day under each policy. `address` is `local` (a cluster of this machine, for this call), `auto`, or host:port;
    the nodes of a cluster need this very release.

    Raises:
        SettingsError: Ray is not installed, or there is no such cluster.
        IsthmusError: a task failed.
    """
    try:
        import ray  # noqa: PLC0415 - optional, and seconds to load
        from ray.exceptions import RayError  # noqa: PLC0415
    except ImportError:
        raise SettingsError("Ray is not installed here (extra [cloud]).", param="--ray") from None
    options: dict[str, Any] = {"include_dashboard": False} if address == _LOCAL else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except (ConnectionError, ValueError, RuntimeError, RayError):
        raise SettingsError("No Ray cluster answers there.", param="--ray") from None
    try:
        task = ray.remote(num_cpus=1)(day_of)
        running = {name: task.remote(plan, policy) for name, policy in policies.items()}
        return dict(zip(running, ray.get(list(running.values())), strict=True))
    except RayError:
        raise IsthmusError("A task of the simulation failed on the cluster; its nodes need the same release.") from None
    finally:
        ray.shutdown()
