"""Turns what users said about their requests' classes into rules that an operator may take over; applies none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.privacy import PrivacyClass, is_stricter

_UNFIT = re.compile(r"[^a-z0-9_-]+")
Group = tuple[PrivacyClass, PrivacyClass, tuple[str, ...], str | None]


@dataclass(frozen=True, slots=True)
class Proposal:
    """One rule that corrections speak for. `found` is what the scanner said, `said` what users said."""

    found: PrivacyClass
    said: PrivacyClass
    kinds: tuple[str, ...]
    key_name: str | None
    count: int

    @property
    def is_looser(self) -> bool:
        """Whether the rule would let out more than now."""
        return is_stricter(self.found, self.said)

    def rule(self) -> dict[str, Any]:
        """As it would stand in a policy file. A looser one is bound to exactly the kinds that were found; a stricter
        one to the key, as the log holds no words that could be looked for."""
        words = "-".join((*self.kinds, self.key_name or "")).strip("-") or "anything"
        name = _UNFIT.sub("-", f"{self.found}-to-{self.said}-{words}".lower())[:64]
        # What a stricter class is allowed, a less strict one is too.
        least = PrivacyClass.PERSONAL if self.is_looser else self.found
        match: dict[str, Any] = {"class": list(dict.fromkeys((str(least), str(self.found))))}
        if self.kinds:
            match["only_entities"] = list(self.kinds)
        if self.key_name is not None:
            match["key"] = [self.key_name]
        action = "any" if self.said is PrivacyClass.PUBLIC else "edge_only"
        return {"name": name, "match": match, "act": {"action": action}}


def proposals(records: Iterable[Mapping[str, Any]], *, least: int) -> list[Proposal]:
    """Rules that at least `least` corrections speak for, the most wanted first. Corrections that agree with what was
    found, and those of requests that were not fully scanned, speak for none."""
    votes: dict[str, Group] = {}
    for record in records:
        if record.get("kind") != "feedback":
            continue
        try:
            about, group = str(record["about"]), _group_of(record)
        except (KeyError, TypeError, ValueError):  # a line that no router wrote speaks for nothing
            continue
        # Of several corrections of one request the newest counts; records come newest first.
        votes.setdefault(about, group)
    return [
        Proposal(found, said, kinds, key, count)
        for (found, said, kinds, key), count in sorted(Counter(votes.values()).items(), key=lambda pair: -pair[1])
        if count >= least and _speaks_for_a_rule(found, said, kinds)
    ]


def _group_of(record: Mapping[str, Any]) -> Group:
    key = record["key"]
    kinds = tuple(map(str, record["kinds"]))
    return PrivacyClass(record["class_found"]), PrivacyClass(record["class_said"]), kinds, key and str(key)


def _speaks_for_a_rule(found: PrivacyClass, said: PrivacyClass, kinds: tuple[str, ...]) -> bool:
    if found is said or found is PrivacyClass.UNKNOWN:
        return False
    return bool(kinds) or is_stricter(said, found)
