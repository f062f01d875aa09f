"""Credits a device that is about to throttle with the speed that it will have then, so that load moves before.

Pure. The level is left as it is: a device that is about to become critical still takes work that may run nowhere else.
"""

from __future__ import annotations

from shared.fleet import Heartbeat, ThermalLevel

HORIZON_S = 5.0
"""How far ahead it matters: about as long as an answer."""
_AFTER = {
    ThermalLevel.NOMINAL: 0.9,
    ThermalLevel.WARM: 0.6,
    ThermalLevel.UNKNOWN: 0.6,
    ThermalLevel.HOT: 0.01,
}
"""Share of the nominal speed on the level after this one; beyond hot nothing new is taken."""


def foreseen_ratio(beat: Heartbeat) -> float:
    """The share of its nominal speed to expect of the agent that sent `beat`."""
    left_s = beat.seconds_to_throttle
    if left_s is None or left_s > HORIZON_S:
        return beat.derate_ratio
    return min(beat.derate_ratio, _AFTER.get(beat.level, beat.derate_ratio))
