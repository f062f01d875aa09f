"""Texts full of numbers that are nobody's: exports, logs, tables, orders, measurements, as the scanner benchmark meets.

They are drawn as such texts are: identifiers count up or are drawn whole, sums and sensors have their ranges, and each
text holds tens of numbers, so that a chance hit of one in a hundred thousand shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from stdnum import ean

Make = Callable[[random.Random], str]
_ROWS = 12
_EPOCH = datetime(2019, 1, 1, tzinfo=UTC)


def _moment(draw: random.Random) -> datetime:
    return _EPOCH + timedelta(milliseconds=draw.randrange(7 * 365 * 86_400_000))


def _digits(draw: random.Random, count: int) -> str:
    return draw.choice("123456789") + "".join(draw.choice("0123456789") for _ in range(count - 1))


def _article(draw: random.Random, prefix: str = "") -> str:
    """A European article number: prefixes are those of countries that give them out (GS1)."""
    body = prefix or draw.choice(("303", "376", "401", "500", "540", "570", "640", "730", "761", "801", "841", "871"))
    body += _digits(draw, 12 - len(body))
    return f"{body}{ean.calc_check_digit(body)}"


def _rows(head: str, row: Make) -> Make:
    return lambda draw: "\n".join([head, *(row(draw) for _ in range(_ROWS))])


def _counted(head: str, row: Callable[[random.Random, int], str]) -> Make:
    def make(draw: random.Random) -> str:
        first = draw.randrange(10_000_000)
        return "\n".join([head, *(row(draw, first + at) for at in range(_ROWS))])

    return make


def _csv_orders(draw: random.Random, number: int) -> str:
    total, article = f"{draw.random() * 900:.2f}", _article(draw)
    return f"{number:010},{_moment(draw):%Y-%m-%d %H:%M:%S},{draw.randrange(1, 99)},{total},{article},shipped"


def _semicolons(draw: random.Random, number: int) -> str:
    sum_ = f"{draw.randrange(1, 4_000)},{draw.randrange(100):02}"
    return f"{number};{_moment(draw):%d.%m.%Y};{sum_};{_digits(draw, 8)};{_digits(draw, 6)}"


def _access(draw: random.Random) -> str:
    address = f"10.{draw.randrange(256)}.{draw.randrange(256)}.{draw.randrange(1, 255)}"
    request = f'"GET /api/v2/orders/{_digits(draw, 9)}?page={draw.randrange(90)} HTTP/1.1"'
    return f"{address} - - [{_moment(draw):%d/%b/%Y:%H:%M:%S} +0000] {request} 200 {draw.randrange(9**5)}"


def _service_log(draw: random.Random) -> str:
    at = f"{_moment(draw):%Y-%m-%dT%H:%M:%S}.{draw.randrange(10**6):06}Z"
    thread = f"pid={draw.randrange(2, 65_536)} tid=140{_digits(draw, 12)}"
    took = f"took={draw.random() * 900:.3f}ms rows={draw.randrange(10**6)}"
    return f"{at} INFO {thread} {took} offset={_digits(draw, 12)} seq={_digits(draw, 10)}"


def _epochs(draw: random.Random) -> str:
    seconds = int(_moment(draw).timestamp())
    nanos = f"{draw.randrange(10**9):09}"
    return f"{seconds} {seconds}{nanos[:3]} {seconds}{nanos[:6]} {seconds}{nanos}"


def _ledger(draw: random.Random) -> str:
    amount = f"{draw.randrange(1, 10**6):,}.{draw.randrange(100):02}"
    return f"{_moment(draw):%Y-%m-%d} | {_digits(draw, 7)} | {amount} | {draw.randrange(-99, 99)} %"


def _sensors(draw: random.Random) -> str:
    return " ".join(f"{draw.gauss(0, 40):.5f}" for _ in range(8))


def _counts(draw: random.Random) -> str:
    return "\t".join(str(draw.randrange(10 ** draw.randrange(1, 8))) for _ in range(9))


def _matrix(draw: random.Random) -> str:
    return draw.choice((" ", "\t", "  ")).join(str(draw.randrange(1_000, 10_000)) for _ in range(10))


def _places(draw: random.Random) -> str:
    return f"{draw.uniform(-90, 90):.6f}, {draw.uniform(-180, 180):.6f}, {draw.randrange(3_000)} m, {_digits(draw, 5)}"


def _sql(draw: random.Random, number: int) -> str:
    values = f"{number}, {_digits(draw, 9)}, {draw.random() * 99:.2f}, {_digits(draw, 11)}"
    return f"VALUES ({values}, '{_moment(draw):%Y%m%d%H%M%S}');"


def _metrics(draw: random.Random) -> str:
    labels = f'code="{draw.choice((200, 404, 503))}",le="0.{draw.randrange(1, 9)}"'
    return f"http_requests_total{{{labels}}} {_digits(draw, 10)} {_moment(draw).timestamp() * 1000:.0f}"


def _parcels(draw: random.Random) -> str:
    return draw.choice(
        (
            f"Parcel {_digits(draw, 12)} left the depot at {_moment(draw):%H:%M}",
            f"tracking 1Z{_digits(draw, 6)}A8{_digits(draw, 8)} delivered",
            f"Sendung {_digits(draw, 14)} zugestellt am {_moment(draw):%d.%m.%Y}",
            f"SKU-{_digits(draw, 5)}-{_digits(draw, 4)} qty {draw.randrange(1, 99)} lot {_digits(draw, 6)}",
            f"PO {_digits(draw, 10)} / line {draw.randrange(10, 990)} / material {_digits(draw, 8)}",
            f"EAN {_article(draw, '40')}, article {_digits(draw, 3)}.{_digits(draw, 3)}.{_digits(draw, 2)}",
        )
    )


def _transactions(draw: random.Random) -> str:
    return f"{_moment(draw):%H:%M:%S} txn {_digits(draw, 16)} -> {_digits(draw, 16)} {draw.random() * 99:.2f} settled"


def _json_items(draw: random.Random, number: int) -> str:
    at, value = int(_moment(draw).timestamp()), f"{draw.random() * 1e6:.4f}"
    more = f'"ref": "{_digits(draw, 10)}", "parent": {_digits(draw, 9)}'
    return f'{{"id": {number}, "ts": {at}, "value": {value}, {more}}}'


def _build(draw: random.Random) -> str:
    step = f"[{draw.randrange(1, 999)}/{draw.randrange(999, 2000)}] build {_digits(draw, 7)}"
    version = f"v{draw.randrange(20)}.{draw.randrange(40)}.{draw.randrange(900)} ({draw.getrandbits(28):07x})"
    return f"{step} {version} {draw.random() * 90:.1f}s exit {draw.randrange(3)}"


def _statistics(draw: random.Random) -> str:
    year, share = draw.randrange(1950, 2025), f"{draw.random() * 100:.2f} % ({draw.randrange(1, 400)})"
    return f"{year}-{year + 1}: {draw.randrange(10**7):,} / {draw.randrange(10**7):,} / {share}"


def _hex_rows(draw: random.Random) -> str:
    return f"{draw.getrandbits(32):08x}: " + " ".join(f"{draw.getrandbits(16):04x}" for _ in range(8))


def _octets(draw: random.Random) -> str:
    return " ".join(str(draw.randrange(256)) for _ in range(16))


def _processes(draw: random.Random) -> str:
    memory = f"{draw.randrange(10**7):>8} {draw.randrange(10**6):>7}"
    started = f"{_moment(draw):%H:%M:%S} worker-{draw.randrange(64)}"
    return f"{draw.randrange(2, 99_999):>6} {draw.random() * 99:>5.1f} {memory} {started}"


NUMBERS: dict[str, Make] = {
    "orders as CSV": _counted("order_id,created_at,quantity,total,ean,state", _csv_orders),
    "accounts as CSV": _counted("Nr;Datum;Betrag;Beleg;Konto", _semicolons),
    "access log": _rows("", _access),
    "service log": _rows("", _service_log),
    "epochs": _rows("seconds millis micros nanos", _epochs),
    "ledger": _rows("date | entry | amount | change", _ledger),
    "sensors": _rows("", _sensors),
    "counts": _rows("", _counts),
    "a matrix": _rows("", _matrix),
    "places": _rows("lat, lon, height, id", _places),
    "SQL": _counted("INSERT INTO items (id, ref, price, article, at)", _sql),
    "metrics": _rows("# TYPE http_requests_total counter", _metrics),
    "parcels": _rows("", _parcels),
    "transactions": _rows("", _transactions),
    "items as JSON": _counted("", _json_items),
    "builds": _rows("", _build),
    "statistics": _rows("", _statistics),
    "a hex dump": _rows("", _hex_rows),
    "octets": _rows("", _octets),
    "processes": _rows("   PID  %CPU      RSS     VSZ  STARTED COMMAND", _processes),
}
"""Sorts of such texts, each of a dozen rows."""
