"""Response headers that one tier writes and another passes on."""

from __future__ import annotations

OUTPUT_CAP_HEADER = "x-isthmus-output-cap"
"""`TOKENS; reason=thermal`: the device allows this answer fewer tokens than were asked for, and why. An answer that
reaches the limit ends with `finish_reason: length`."""
