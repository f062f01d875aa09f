"""The policy in the form that Ray Serve's controller calls: a class by its import path in a deployment's options.

Ray's own delays are set to nothing, so that the ones decided here are the only ones. The state between calls is plain
data in Serve's checkpoint: it outlives the controller.
"""

from __future__ import annotations

from typing import Any

from cloud.scaling.policy import Goals, Pressure, Wish, decide

KV_METRIC = "kv_cache_use_ratio"
IMPORT_PATH = "cloud.scaling.serve:ServePolicy"
_DIRECTION, _SINCE = "isthmus_direction", "isthmus_since_s"


class ServePolicy:
    """`Goals` by keyword; called with an `AutoscalingContext` in every control loop."""

    def __init__(self, **goals: Any) -> None:
        self._goals = Goals(**goals)

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """Replicas, and the state for the next call."""
        state = context.policy_state or {}
        told = (context.aggregated_metrics or {}).get(KV_METRIC) or {}
        pressure = Pressure(
            replicas=context.target_num_replicas,
            requests=context.total_num_requests,
            kv_use_ratios=tuple(told.values()),
        )
        wish = Wish(int(state.get(_DIRECTION, 0)), float(state.get(_SINCE, 0.0)))
        replicas, wish = decide(pressure, self._goals, wish, float(context.current_time))
        return replicas, {_DIRECTION: wish.direction, _SINCE: wish.since_s}
