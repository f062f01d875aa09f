"""Reads HTML as a page shows it: without the tags inside a word, and with a table's cells side by side.

`4111 <b>1111</b> 1111 1111` is one number to a reader and to a model, and the head of a column names its cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from router.privacy.normalise import View, replaced_view

_INLINE = "a|abbr|b|bdi|bdo|big|code|del|em|font|i|ins|kbd|mark|nobr|s|samp|small|span|strong|sub|sup|tt|u|var|wbr"
_TAG_CHARS = 2_048
"""Offices and mails write the style of a cell into its tag."""
_TAGS = re.compile(rf"(?i)(?:(?:</?[a-z][^<>]{{0,{_TAG_CHARS}}}>|<!--[^<>]{{0,{_TAG_CHARS}}}-->)\s{{0,64}})++")
_INLINE_TAGS = re.compile(rf"(?i)</?(?:{_INLINE})(?![a-z])[^<>]*>|<!--[^<>]*-->")
_OF_TABLE = re.compile(r"(?i)<(?P<cell>t[dh])(?![a-z])|</?(?P<row>tr|table)(?![a-z])|</t[dh](?![a-z])")
_OF_LIST = re.compile(r"(?i)<(?:(?P<item>li)|(?P<meaning>dd))(?![a-z])")
_LINES = re.compile(r"\n+")
TRIGGERS = (rb"(?i)</t[dh]>", rb"(?i)<(?:li|dd)[ >]", rb"(?i)[0-9@][ \-]?<[/!a-z]")


def as_shown(view: View) -> Iterator[View]:
    """The text of a page, lines for its rows and blocks."""
    if _TAGS.search(view.text):
        yield replaced_view(view, _TAGS, _shown)


def _shown(tags: re.Match[str]) -> str:
    """What a run of tags and blanks looks like. One sign a cell, for an empty one has its place too; the rows of a
    table have no blank lines between them, and what parts the lines within a cell ends no row."""
    of_table = list(_OF_TABLE.finditer(tags.group()))
    if of_table:
        signs = "".join(" | " if each["cell"] else "\n" if each["row"] else "" for each in of_table)
        return _LINES.sub("\n", signs) or " "
    if of_list := _OF_LIST.search(tags.group()):
        return "\n* " if of_list["item"] else ": "
    blanks = _INLINE_TAGS.sub("", tags.group())
    return blanks if not blanks or blanks.isspace() else "\n\n"
