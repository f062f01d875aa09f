"""Reads HTML as a page shows it: without the tags inside a word, and with a table's cells side by side.

`4111 <b>1111</b> 1111 1111` is one number to a reader and to a model, and the head of a column names its cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from router.privacy.normalise import View, replaced_view

_INLINE = "a|abbr|b|bdi|bdo|big|code|del|em|font|i|ins|kbd|mark|nobr|s|samp|small|span|strong|sub|sup|tt|u|var|wbr"
_TAGS = re.compile(
    r"(?i)(?P<table>(?:</?(?:t[dhr]|thead|tbody|tfoot|table)(?![a-z])[^<>]{0,256}>\s{0,64})+)"
    rf"|(?P<inline></?(?:{_INLINE})(?![a-z])[^<>]{{0,256}}>|<!--[^<>]{{0,256}}-->)"
    r"|</?[a-z][^<>]{0,256}>"
)
_ROW = re.compile(r"(?i)</?tr(?![a-z])")
TRIGGERS = (rb"(?i)</t[dh]>", rb"(?i)[0-9@][ \-]?<[/!a-z]")


def as_shown(view: View) -> Iterator[View]:
    """The text of a page, lines for its rows and blocks."""
    yield replaced_view(view, _TAGS, _shown)


def _shown(tag: re.Match[str]) -> str:
    if tag["inline"]:
        return ""
    if tag["table"]:
        return "\n" if _ROW.search(tag["table"]) else " | "
    return "\n\n"
