"""Tells the minute of the week in a time zone, which is all that rules know of the calendar."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo


def week_minute(unix_s: float, zone: ZoneInfo) -> int:
    """Minutes since Monday 00:00 in `zone`, below 10,080."""
    there = datetime.fromtimestamp(unix_s, zone)
    return (there.weekday() * 24 + there.hour) * 60 + there.minute
