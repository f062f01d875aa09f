"""Decides what is done to an answer on its way back, by the tier that gave it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from router.privacy.answers import Chain, NewFilter, TextFilter, as_it_is, json_written
from router.privacy.classify import TextScanner
from router.privacy.outputs import AnswerScan
from router.privacy.placeholders import Placeholders, Restorer

Tier = Literal["edge", "cloud"]


class AnswerScanning(StrEnum):
    """Whose answers are scanned before they go on."""

    OFF = "off"
    CLOUD = "cloud"
    ALL = "all"


_SCANNED: dict[AnswerScanning, frozenset[Tier]] = {
    AnswerScanning.OFF: frozenset(),
    AnswerScanning.CLOUD: frozenset({"cloud"}),
    AnswerScanning.ALL: frozenset({"edge", "cloud"}),
}


class Answers:
    """Makes the filters of answers. `on_found` is told each kind that was replaced in one."""

    def __init__(self, scanner: TextScanner, scanning: AnswerScanning, *, on_found: Callable[[str], None]) -> None:
        self._scanner = scanner
        self._scanned = _SCANNED[scanning]
        self._on_found = on_found

    def filters(self, placeholders: Placeholders | None, *, scan: bool | None = None) -> Mapping[Tier, NewFilter]:
        """How texts of an answer are rewritten, by tier; a tier that is missing passes its bytes on as they are.
        `scan` is what a rule says of scanning them (None: nothing).
        `placeholders` is the map of a body that a cloud got masked: values come back only after the scan, which
        would take them out again."""
        if placeholders is None and not scan and (scan is False or not self._scanned):
            return {}
        tiers: tuple[Tier, ...] = ("edge", "cloud")
        scanned = self._scanned if scan is None else frozenset(tiers) if scan else frozenset()
        made: dict[Tier, NewFilter] = {}
        for tier in tiers:
            restoring = placeholders if tier == "cloud" else None
            if tier in scanned or restoring is not None:
                made[tier] = _Filters(self._scanner if tier in scanned else None, restoring, self._on_found)
        return made


@dataclass(frozen=True, slots=True)
class _Filters:
    """The filters of one answer: `scanner` where it is scanned, `placeholders` where values come back."""

    scanner: TextScanner | None
    placeholders: Placeholders | None = field(repr=False)
    on_found: Callable[[str], None]

    @property
    def keeps_tokens(self) -> bool:
        return self.scanner is None

    def __call__(self, is_json: bool, /) -> TextFilter:
        filters: list[TextFilter] = [] if self.scanner is None else [AnswerScan(self.scanner, self.on_found)]
        if self.placeholders is not None:
            filters.append(Restorer(self.placeholders, json_written if is_json else as_it_is))
        return Chain(filters)
