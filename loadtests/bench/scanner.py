"""Measures the privacy scanner: recall, false alarms and time: `python -m loadtests.bench.scanner`.

Recall is of specimens in six languages by kind, false alarms are of texts that only look like them, both from a corpus
that is made here (`scanner_corpus`). Time is processor time of one scan of clean text, beside the floor of looking
at each character once. A fixed seed makes two runs comparable.
"""

from __future__ import annotations

import importlib.util
import random
import re
import time
from collections import Counter

from loadtests.bench.scanner_corpus import KINDS, LANGUAGES, LIKE_CARDS, negatives, positives
from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition
from shared.privacy import PrivacyClass

_SEED = 20
_EACH = 300
_NEGATIVES = 10_000
_EACH_BESIDE, _NEGATIVES_BESIDE = 40, 400
_CREDENTIALS = frozenset(
    {"openai_key", "github_token", "google_key", "stripe_key", "jwt", "connection_string", "private_key"}
)
_ROUNDS = 7
_CLEAN = {
    "english": "The quick brown fox jumps over the lazy dog, and then it sleeps until noon. ",
    "german": "Der schnelle braune Fuchs springt über den faulen Hund und schläft danach bis mittags. ",
    "chinese": "今天天气很好，我们一起去公园散步，然后在湖边喝茶聊天。",
    "code": "for index, item in enumerate(items[:10]):\n    total += item.price * 1.19  # with tax\n",
    "json": '{"name": "item", "count": 12, "tags": ["new", "blue"], "price": 3.5}, ',
}
_FLOOR = re.compile(r"\x00")


def _microseconds(scanner: Scanner, text: str) -> tuple[float, float]:
    """Processor time of one scan and of the floor, each the least of several rounds that alternate."""
    texts = [TextPosition("t", text)]
    calls = max(3, 100_000 // len(text))
    scans, floors = [], []
    for _ in range(_ROUNDS):
        began = time.process_time_ns()
        for _ in range(calls):
            scanner.scan(texts)
        middle = time.process_time_ns()
        for _ in range(calls):
            _FLOOR.search(text)
        scans.append(middle - began)
        floors.append(time.process_time_ns() - middle)
    return min(scans) / calls / 1_000, min(floors) / calls / 1_000


def _print_speed(scanner: Scanner) -> None:
    print(f"{'clean text':<12} {'us per 1 KB':>12} {'ratio':>6} {'us per 64 KB':>13} {'ratio':>6}")
    for name, unit in _CLEAN.items():
        chars_per_byte = len(unit) / len(unit.encode())
        text = unit * (1 + int(65_536 / len(unit)))
        small, floor = _microseconds(scanner, text[: int(1_024 * chars_per_byte)])
        large, large_floor = _microseconds(scanner, text[: int(65_536 * chars_per_byte)])
        print(f"{name:<12} {small:>12.1f} {small / floor:>6.1f} {large:>13.1f} {large / large_floor:>6.1f}")


def _print_recall(scanner: Scanner, draw: random.Random) -> None:
    print(f"\n{'kind':<18} {'check digit':>11} {'recall':>7}   of {_EACH} in {', '.join(LANGUAGES)}")
    checked: list[float] = []
    others: list[float] = []
    for kind in KINDS:
        texts = positives(kind, draw, _EACH)
        hits = sum(kind.kind in scanner.scan([TextPosition("t", text)]).kinds for text in texts)
        (checked if kind.has_checksum else others).append(hits / _EACH)
        print(f"{kind.title or kind.kind:<18} {'yes' if kind.has_checksum else 'no':>11} {hits / _EACH:>7.3f}")
    print(f"least recall: {min(checked):.3f} with a check digit, {min(others):.3f} without")


def _print_false_alarms(scanner: Scanner, draw: random.Random) -> None:
    texts: Counter[str] = Counter()
    by_sort: Counter[str] = Counter()
    by_kind: Counter[str] = Counter()
    for sort, text in negatives(draw, _NEGATIVES):
        kinds = scanner.scan([TextPosition("t", text)]).kinds
        texts[sort] += 1
        by_sort[sort] += bool(kinds)
        by_kind.update(kinds)
    print("\nfalse alarms (target: 1 per 1,000 texts)")
    numbers = {sort for sort in texts if sort.startswith("numbers: ")}
    for name, sorts in (
        ("prose, code, logs, ids", texts.keys() - numbers),
        ("texts full of numbers", numbers - {LIKE_CARDS}),
        (LIKE_CARDS, {LIKE_CARDS}),
        ("all of them", texts.keys()),
        (f"all without {LIKE_CARDS!r}", texts.keys() - {LIKE_CARDS}),
    ):
        alarms, count = sum(by_sort[sort] for sort in sorts), sum(texts[sort] for sort in sorts)
        print(f"{name:<40} {alarms:>4} in {count:>6} ({alarms / count * 1_000:>6.1f} per 1,000)")
    print(f"by sort: {dict(+by_sort)}; by kind: {dict(by_kind)}")


def _print_beside_detect_secrets(scanner: Scanner, draw: random.Random) -> None:
    """The same over credentials alone, by the library made for them (ADR 0008)."""
    if importlib.util.find_spec("detect_secrets") is None:
        print("\ndetect-secrets is not installed: not compared")
        return
    # For development alone, and slow to load.
    from detect_secrets.core.scan import scan_line  # noqa: PLC0415
    from detect_secrets.settings import default_settings  # noqa: PLC0415

    def of_library(text: str) -> bool:
        return any(secret for line in text.splitlines() for secret in scan_line(line))

    def of_scanner(text: str) -> bool:
        return scanner.scan([TextPosition("t", text)]).privacy_class is PrivacyClass.SECRET

    specimens = [text for kind in KINDS if kind.kind in _CREDENTIALS for text in positives(kind, draw, _EACH_BESIDE)]
    nothing = [text for _, text in negatives(draw, _NEGATIVES_BESIDE)]
    print(f"\n{'credentials':<15} {'recall':>7} {'false alarms':>13} {'us a text':>10}")
    with default_settings():
        for name, reads in (("detect-secrets", of_library), ("scanner", of_scanner)):
            began = time.process_time_ns()
            found, alarms = sum(map(reads, specimens)), sum(map(reads, nothing))
            spent_us = (time.process_time_ns() - began) / 1_000 / (len(specimens) + len(nothing))
            print(f"{name:<15} {found / len(specimens):>7.3f} {alarms:>13} {spent_us:>10.0f}")


def main() -> None:
    """Print the tables."""
    scanner, draw = Scanner(), random.Random(_SEED)
    _print_speed(scanner)
    _print_recall(scanner, draw)
    _print_false_alarms(scanner, draw)
    _print_beside_detect_secrets(scanner, draw)


if __name__ == "__main__":
    main()
