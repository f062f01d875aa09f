"""Writes the verdict as JUnit XML, one test case an objective, so that a pipeline shows what was missed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape, quoteattr

_ILLEGAL = {code: "?" for code in range(32) if code not in (9, 10, 13)}


def junit(report: Mapping[str, Any]) -> str:
    """The document: a case for validity, one for each objective."""
    name = f"loadtest.{report['plan']['scenario']}"
    reasons = "; ".join(report["invalid_because"])
    cases = [("the run is valid", report["valid"], reasons or "valid")]
    for each in report["objectives"]:
        seen = "nothing was measured" if each["seen"] is None else f"seen {each['seen']:g}"
        cases.append((each["name"], each["met"], seen))
    failed = sum(not met for _, met, _ in cases)
    body = "".join(_case(name, *case) for case in cases)
    head = f'tests="{len(cases)}" failures="{failed}" errors="0" time="{report["duration_s"]:.3f}"'
    stamp = quoteattr(report["plan"]["began"])
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<testsuites {head}>\n<testsuite name={quoteattr(_clean(name))} timestamp={stamp} {head}>\n{body}"
        "</testsuite>\n</testsuites>\n"
    )


def _case(suite: str, name: str, met: bool, seen: str) -> str:
    head = f"<testcase classname={quoteattr(_clean(suite))} name={quoteattr(_clean(name))}"
    if met:
        return f"{head}/>\n"
    return f"{head}><failure message={quoteattr(_clean(seen))}>{escape(_clean(seen))}</failure></testcase>\n"


def _clean(text: str) -> str:
    return text.translate(_ILLEGAL)
