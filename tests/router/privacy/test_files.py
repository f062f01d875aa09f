"""A file in a text, as tools give it back, holds what no scanner reads: the text is not clean."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import lzma
import random
import textwrap
import zipfile
import zlib
from collections.abc import Callable

import pytest

from router.privacy.model import Classification
from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition
from shared.privacy import PrivacyClass
from tests.router.privacy.specimens import CARD

_NOISE = random.Random(5).randbytes(600)


def _zip() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", f"<w:t>{CARD}</w:t>" * 20)
    return held.getvalue()


FILES = {
    "pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + zlib.compress(CARD.encode() * 20) + _NOISE,
    "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + _NOISE,
    "jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF" + _NOISE,
    "exif": b"\xff\xd8\xff\xe1\x00\x10Exif" + _NOISE,
    "gif": b"GIF89a" + _NOISE,
    "tiff": b"II*\x00\x08\x00\x00\x00" + _NOISE,
    "docx": _zip(),
    "gzip": gzip.compress(CARD.encode() * 20 + _NOISE),
    "xz": lzma.compress(CARD.encode() + _NOISE),
    "bzip2": bz2.compress(CARD.encode() + _NOISE),
    "doc": bytes.fromhex("d0cf11e0a1b11ae1") + _NOISE,
    "ogg": b"OggS\x00\x02" + _NOISE,
    "mp3": b"ID3\x03\x00" + _NOISE,
    "flac": b"fLaC\x00\x00" + _NOISE,
    "webm": bytes.fromhex("1a45dfa3") + _NOISE,
}
WRITTEN: dict[str, Callable[[bytes], str]] = {
    "plain": lambda raw: base64.b64encode(raw).decode(),
    "for addresses": lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("="),
    "in lines": lambda raw: "\n".join(textwrap.wrap(base64.b64encode(raw).decode(), 76)),
    "in JSON": lambda raw: '{"ok": true, "content": "' + base64.b64encode(raw).decode() + '"}',
    "behind words": lambda raw: f"Content-Transfer-Encoding: base64\r\n\r\n{base64.b64encode(raw).decode()}\r\n--b--",
}


def _scan(scanner: Scanner, text: str) -> Classification:
    return scanner.scan([TextPosition("t", text)])


@pytest.mark.parametrize("written", WRITTEN.values(), ids=list(WRITTEN))
@pytest.mark.parametrize("raw", FILES.values(), ids=list(FILES))
def test_pi_09_a_file_in_base64_is_not_clean(scanner: Scanner, raw: bytes, written: Callable[[bytes], str]) -> None:
    found = _scan(scanner, written(raw))
    assert (found.privacy_class, found.complete, found.cause) == (PrivacyClass.UNKNOWN, False, "undecodable")


def test_what_stands_beside_a_file_is_found(scanner: Scanner) -> None:
    found = _scan(scanner, f"{WRITTEN['plain'](FILES['pdf'])} {CARD}")
    assert found.privacy_class is PrivacyClass.UNKNOWN and [e.kind for e in found.entities] == ["card"]


@pytest.mark.parametrize("raw", FILES.values(), ids=list(FILES))
def test_the_mark_of_a_file_alone_is_no_file(scanner: Scanner, raw: bytes) -> None:
    assert _scan(scanner, f"It begins with {base64.b64encode(raw[:15]).decode()}.").privacy_class is PrivacyClass.PUBLIC


def test_words_of_the_alphabet_are_no_files(scanner: Scanner) -> None:
    """Digests, keys and ids: whatever they hold, they begin like no file."""
    draw = random.Random(3)
    for _ in range(300):
        word = base64.b64encode(draw.randbytes(64)).decode()
        assert _scan(scanner, f"integrity sha512-{word}").complete


def test_text_in_base64_is_read(scanner: Scanner) -> None:
    plain = base64.b64encode(b"Nothing but a long sentence about bridges, which anybody may read at any time.").decode()
    assert _scan(scanner, plain) == Classification(PrivacyClass.PUBLIC, (), complete=True)
