"""Undoes letters of other scripts that pass for Latin ones inside an id.

`DЕ89…` with a Cyrillic Е reads like an IBAN and is none to a pattern. Such letters are exchanged only in words that
mix scripts, so that Russian and Greek stay what they are. The pairs are those of Unicode's table of confusables
(UTS 39) that are alike in common fonts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from router.privacy.normalise import View, is_latin, replaced_view

_PAIRS = (
    ("АВЕЅІЈКМНОРСТУХҮԌԚԜаеѕіјсрухԁԛԝһӏкмт", "ABESIJKMHOPCTYXYGQWaesijcpyxdqwhlkmt"),  # Cyrillic
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧανορτυχκι", "ABEZHIKMNOPTYXavoptuxki"),  # Greek
    ("ᎠᎡᎢᎪᎫᎬᎳᎷᎻᏀᏃᏎᏚᏞᏟᏢᏦᏴᏙ", "DRTAJEWMHGZ4SLCPKBV"),  # Cherokee
    ("ꓮꓐꓚꓓꓰꓝꓖꓧꓲꓙꓗꓡꓟꓠꓳꓑꓣꓢꓔꓴꓦꓪꓫꓬꓜ", "ABCDEFGHIJKLMNOPRSTUVWXYZ"),  # Lisu
    ("ՏՍՕԼօսոհյզց", "SUOLounhjqg"),  # Armenian
    ("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢıɑɡ", "ABCDEFGHIJKLMNOPRSTUVWYZiag"),  # small capitals and other Latin letters
)
_LATIN_OF = {char: plain for chars, plains in _PAIRS for char, plain in zip(chars, plains, strict=True)}
_ALIKE = "".join(sorted(_LATIN_OF))
_UPPER = "".join(char for char in _ALIKE if char.isupper())
_OTHER_LETTER = r"[^\W\d_A-Za-z]"
_NEIGHBOUR = "A-NP-Za-np-z0-9"
"""Of the plain letters, o is left out: folding has made it of a Cyrillic one, which stands in half of all words."""
_MIXED = re.compile(rf"[{_NEIGHBOUR}][{_ALIKE}]|[{_ALIKE}][{_NEIGHBOUR}]|(?<!\w)[{_UPPER}]{{2,4}}[ -]?[0-9]")
_ANY = re.compile(f"[{_ALIKE}]")
_WORD = re.compile(rf"(?<!{_OTHER_LETTER})[{_ALIKE}]{{1,64}}(?!{_OTHER_LETTER})")
TRIGGERS = (rb"[A-Za-z0-9]\?", rb"\?[ -]?[A-Za-z0-9]")


def latin(view: View) -> Iterator[View]:
    """The text with Latin letters, where it mixes scripts within a word."""
    if not is_latin(view.text) and _ANY.search(view.text) and _MIXED.search(view.text):
        yield replaced_view(view, _WORD, _latin)


def _latin(match: re.Match[str]) -> str:
    return "".join(map(_LATIN_OF.__getitem__, match[0]))
