"""Measures processor time to check an audit log and to find a record in it: `python -m loadtests.bench.audit`.

The floor is reading the same files and taking the same keyed code over each line, which no check can leave out.
"""

from __future__ import annotations

import hashlib
import hmac
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loadtests.bench.decide import NOW_MS, fleet_of
from loadtests.bench.decide import policy as bench_policy
from router.audit.account import Account, Attempt
from router.audit.evidence import Evidence
from router.audit.files import files_of, find_line
from router.audit.storage import AuditStorage, Sync
from router.audit.verification import verify
from router.policy.decision import decide
from router.policy.model import DecisionFacts
from shared.openai.facts import Endpoint, RequestFacts
from shared.privacy import PrivacyClass

_RECORDS = 100_000
_BATCH = 500
_TARGET_S = 10
_KEY = b"k" * 32


def _record() -> dict[str, Any]:
    """A record as a router with four backends writes it."""
    fleet = fleet_of(4)
    facts = DecisionFacts(
        RequestFacts(Endpoint.CHAT, "small", True, 200, 128, frozenset()), PrivacyClass.PUBLIC, frozenset()
    )
    account = Account("dec-0", "req-0", Endpoint.CHAT, 1_700_000_000.0, NOW_MS, model="small", stream=True)
    account.privacy_class, account.prompt_tokens_estimate = PrivacyClass.PUBLIC, 200
    account.decision, account.evidence = decide(facts, fleet, bench_policy(), NOW_MS), Evidence(facts, fleet, NOW_MS)
    account.attempts.append(Attempt("backend-0", "edge", "ok", 200, 180.0, 900.0, 120))
    return account.record(NOW_MS + 900)


def _fill(folder: Path) -> None:
    storage, record = AuditStorage(folder, _KEY, file_bytes=64 * 1024 * 1024, sync=Sync.NEVER), _record()
    for first in range(0, _RECORDS, _BATCH):
        storage.append([{**record, "decision_id": f"dec-{n}"} for n in range(first, first + _BATCH)])
    storage.close()


def _codes(folder: Path) -> int:
    lines = 0
    for path in files_of(folder):
        with path.open("rb") as file:
            for line in file:
                hmac.new(_KEY, line, hashlib.sha256).hexdigest()
                lines += 1
    return lines


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def _row(name: str, cost_s: float, floor_s: float, target: str = "") -> None:
    print(f"{name:<28} {cost_s:>7.2f} s  floor {floor_s:>6.2f} s  ratio {cost_s / floor_s:>5.2f}  {target}")


def main() -> None:
    """Fill a log of 100,000 records, then check it whole, check it with one changed, and find the oldest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _fill(folder)
        files = files_of(folder)
        size = sum(path.stat().st_size for path in files)
        print(f"{_RECORDS:,} records of {size // _RECORDS} bytes in {len(files)} files")
        floor_s = min(_seconds(lambda: _codes(folder)) for _ in range(3))
        _row("verify", min(_seconds(lambda: verify(folder, _KEY)) for _ in range(3)), floor_s, f"target {_TARGET_S} s")
        _row("find the oldest record", _seconds(lambda: find_line(folder, "dec-0")), floor_s)
        last = files[-1]
        last.write_bytes(last.read_bytes().replace(b'"status":200', b'"status":500', 1))
        began = time.process_time()
        found = verify(folder, _KEY)
        _row("verify with one changed", time.process_time() - began, floor_s)
        print(f"found: {found.fault} (bears the id {found.decision_id})")


if __name__ == "__main__":
    main()
