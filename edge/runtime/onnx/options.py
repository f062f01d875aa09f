"""The closed set of options of an ONNX engine process, each within the range that the runtime survives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from edge.runtime.options import check_range
from shared.errors import SettingsError

_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
_RANGES = ("context_tokens", "slots", "threads", "prefill_tokens")


@dataclass(frozen=True, slots=True)
class OnnxOptions:
    """Options of one process, fixed for its life. `context_tokens` is per slot.

    Raises:
        SettingsError: a value lies outside its range.
    """

    model_alias: str
    context_tokens: int
    slots: int
    threads: int
    prefill_tokens: int = 128
    """Prompt tokens that are computed in one go: what another stream waits for at most."""

    def __post_init__(self) -> None:
        for name in _RANGES:
            check_range(name, getattr(self, name))
        if not _ALIAS.fullmatch(self.model_alias):
            raise SettingsError("The model's name must be letters, digits and ._:/- only.", param="model_alias")

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Threads of the runtime."""
        return (self.threads,)

    def with_thread_counts(self, counts: tuple[int, ...]) -> OnnxOptions:
        """The same with other counts."""
        (threads,) = counts
        return replace(self, threads=threads)

    @property
    def environment(self) -> Mapping[str, str]:
        """None: the runtime takes its options from the message."""
        return {}

    def wire(self) -> dict[str, str | int | bool]:
        """The message to the child process."""
        return {
            "model_alias": self.model_alias,
            "context_tokens": self.context_tokens,
            "slots": self.slots,
            "threads": self.threads,
            "prefill_tokens": self.prefill_tokens,
        }
