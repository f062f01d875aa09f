"""The HTML report: complete, self-contained, escaped; and what it looks like in Chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from loadtests.report.charts import nice_ceiling
from loadtests.report.junit import junit
from loadtests.report.page import page

Run = tuple[dict[str, Any], list[dict[str, Any]]]
_CHROMIUM = shutil.which("chromium")
_SIZE = (760, 3600)
_SCALE = 2
"""The picture is taken at half the size: enough to see places and colours, and quick to read."""


def test_the_page_needs_nothing_from_elsewhere(heat_run: Run) -> None:
    shown = page(*heat_run)
    assert not re.search(r"<script|<link|<img|@import|url\(|src=", shown)
    assert "http://h:8080" in shown
    assert re.findall(r"https?://(?!h:8080)", shown) == []
    for svg in re.findall(r"<svg.*?</svg>", shown, re.DOTALL):
        ElementTree.fromstring(svg)


def test_the_page_shows_verdict_leaks_charts_and_faults(heat_run: Run) -> None:
    shown = page(*heat_run)
    assert "verdict bad'>missed" in shown
    assert "<b>0</b><small>leaks (bytes)</small>" in shown
    assert shown.count("<svg") == 6
    assert shown.count('class="band"') == 6, "every chart has the fault behind it"
    assert "nothing measured" in shown
    assert "<td>100%</td><td>20%</td><td>100%</td>" in shown
    assert "A &lt;mix&gt; &amp; more." in shown


def test_an_invalid_run_says_why_first(heat_run: Run) -> None:
    report, rows = heat_run
    shown = page({**report, "valid": False, "invalid_because": ["worker 1 was lost & gone"]}, rows)
    assert "verdict bad'>invalid" in shown
    assert shown.index("worker 1 was lost &amp; gone") < shown.index("<svg")


def test_a_run_without_answers_has_a_page(heat_run: Run) -> None:
    report, _ = heat_run
    assert page({**report, "looks": [], "faults": []}, []).count("No good answer came.") >= 3


def test_junit_has_a_case_for_each_objective_and_survives_any_text(heat_run: Run) -> None:
    report, _ = heat_run
    odd = {**report, "valid": False, "invalid_because": ['a "b" <c> \x00 &']}
    suite = ElementTree.fromstring(junit(odd))
    assert (suite.get("tests"), suite.get("failures")) == ("4", "3")
    assert [case.get("name") for case in suite.iter("testcase")][1] == "ttft_ms p95 at most 500"


@pytest.mark.parametrize(
    ("value", "ceiling"), [(0, 1), (1, 1), (1.01, 2), (2.2, 2.5), (9.9, 10), (101, 200), (0.3, 0.5), (float("inf"), 1)]
)
def test_an_axis_ends_at_a_round_figure(value: float, ceiling: float) -> None:
    assert nice_ceiling(value) == pytest.approx(ceiling)


def test_the_page_looks_right_in_chromium(heat_run: Run, tmp_path: Path) -> None:
    """The picture has the colours of every part at the places where the layout puts them."""
    if _CHROMIUM is None:
        pytest.skip("chromium is not installed (Debian: apt install chromium)")
    (tmp_path / "report.html").write_text(page(*heat_run), encoding="utf-8")
    picture = tmp_path / "page.png"
    subprocess.run(
        [
            *(_CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"),
            *(f"--force-device-scale-factor={1 / _SCALE}", f"--user-data-dir={tmp_path / 'profile'}"),
            *(f"--window-size={_SIZE[0]},{_SIZE[1]}", f"--screenshot={picture}", (tmp_path / "report.html").as_uri()),
        ],
        check=True,
        capture_output=True,
        timeout=110,
    )
    width, height, pixels = _read_png(picture)
    assert (width, height) == (_SIZE[0] // _SCALE, _SIZE[1] // _SCALE)
    wanted = {"edge": (0x24, 0x63, 0xC4), "cloud": (0xC8, 0x64, 0x1B), "missed": (0xBB, 0x2D, 0x3B)}
    rows = {name: [y for y, row in enumerate(pixels) if _holds(row, colour)] for name, colour in wanted.items()}
    assert rows["missed"][0] < 120 / _SCALE, "the verdict stands on top"
    # A column of shares is a tall block of one colour; lines and legends are not.
    assert _longest_run(rows["cloud"]) > 100 / _SCALE
    assert _longest_run(rows["edge"]) > 100 / _SCALE
    assert _is_white(pixels[-1]), "the page ends before the picture does: nothing is cut off"
    assert all(_is_white(row[:9] + row[-9:]) for row in pixels), "nothing runs over the sides"


def _read_png(path: Path) -> tuple[int, int, list[bytes]]:
    """Width, height and rows of RGB bytes of an 8-bit PNG without interlacing (ISO/IEC 15948)."""
    data = path.read_bytes()
    width, height, channels = int.from_bytes(data[16:20]), int.from_bytes(data[20:24]), {2: 3, 6: 4}[data[25]]
    packed, at = b"", 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + size]
        at += size + 12
    raw, stride, rows, last = zlib.decompress(packed), width * channels, [], bytearray(width * channels)
    for y in range(height):
        line = raw[y * (stride + 1) : (y + 1) * (stride + 1)]
        last = _unfiltered(line[0], bytearray(line[1:]), last, channels)
        rows.append(bytes(last) if channels == 3 else bytes(b for at, b in enumerate(last) if at % 4 != 3))
    return width, height, rows


def _unfiltered(kind: int, line: bytearray, above: bytearray, step: int) -> bytearray:
    if kind == 2 and not any(above):
        return line
    for at in range(len(line)):
        left = line[at - step] if at >= step else 0
        corner = above[at - step] if at >= step else 0
        guess = (0, left, above[at], (left + above[at]) // 2, _paeth(left, above[at], corner))[kind]
        line[at] = (line[at] + guess) & 255
    return line


def _paeth(a: int, b: int, c: int) -> int:
    return min((a, b, c), key=lambda each: abs(a + b - c - each))


def _holds(row: bytes, colour: tuple[int, int, int]) -> bool:
    at = row.find(bytes(colour))
    while at >= 0 and at % 3:
        at = row.find(bytes(colour), at + 1)
    return at >= 0


def _longest_run(rows: list[int]) -> int:
    longest = run = 0
    for place, y in enumerate(rows):
        run = run + 1 if place and rows[place - 1] == y - 1 else 1
        longest = max(longest, run)
    return longest


def _is_white(row: bytes) -> bool:
    return row.count(255) == len(row)
