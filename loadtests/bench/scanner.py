"""Measures the privacy scanner: recall, false alarms and time: `python -m loadtests.bench.scanner`.

Recall is of specimens in six languages by kind, false alarms are of texts that only look like them, both from a corpus
that is made here (`scanner_corpus`). Time is processor time of one scan of clean text, beside the floor of looking
at each character once. A fixed seed makes two runs comparable.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter

from loadtests.bench.scanner_corpus import KINDS, LANGUAGES, negatives, positives
from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition

_SEED = 20
_EACH = 300
_NEGATIVES = 2_000
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
        print(f"{kind.kind:<18} {'yes' if kind.has_checksum else 'no':>11} {hits / _EACH:>7.3f}")
    print(f"least recall: {min(checked):.3f} with a check digit, {min(others):.3f} without")


def _print_false_alarms(scanner: Scanner, draw: random.Random) -> None:
    by_sort: Counter[str] = Counter()
    by_kind: Counter[str] = Counter()
    for sort, text in negatives(draw, _NEGATIVES):
        kinds = scanner.scan([TextPosition("t", text)]).kinds
        by_sort[sort] += bool(kinds)
        by_kind.update(kinds)
    alarms = sum(by_sort.values())
    print(f"\nfalse alarms: {alarms} in {_NEGATIVES} texts ({alarms / _NEGATIVES * 1_000:.1f} per 1,000)")
    print(f"by sort: {dict(by_sort)}; by kind: {dict(by_kind)}")


def main() -> None:
    """Print the three tables."""
    scanner, draw = Scanner(), random.Random(_SEED)
    _print_speed(scanner)
    _print_recall(scanner, draw)
    _print_false_alarms(scanner, draw)


if __name__ == "__main__":
    main()
