"""Names under which passwords, keys and tokens are kept, in many languages, and values that only stand for one.

A name is looked for by its stem, which is a plain search in the text, and judged only where the stem stands. Texts
are read as they are folded: marks are dropped, a Cyrillic о is Latin, and ー is a dash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from router.privacy.normalise import is_latin
from router.privacy.recognisers.model import Tick


class Sort(Enum):
    """What a name stands for; it says how a value must look to be one."""

    PASSWORD = auto()
    """Chosen by a person: may be a word or a number."""
    KEY = auto()
    """Drawn by a machine or chosen: no short word."""
    WORD = auto()
    """Chosen by a person, but the name is also a word of other meaning: the value must look drawn."""
    TOKEN = auto()
    """Drawn by a machine; a text has tokens too, which are words."""
    PIN = auto()
    """Four to eight digits."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name found in a text. `is_plain` says that nothing follows it, as in `password` beside `password_2`."""

    start: int
    end: int
    sort: Sort
    is_plain: bool


@dataclass(frozen=True, slots=True)
class _Stem:
    """`stem` is what is searched for (lower case), and `rest` goes on behind it. It begins a word, also as in
    `dbPassword`, or stands behind `before`; where that is empty, anywhere."""

    stem: str
    sort: Sort
    rest: str = ""
    before: str | None = None


_ANYWHERE = ""
_KEY_BEFORE = (
    r"(?:api|app|access|secret|private|encryption|signing|master|account|licen[sc]e|auth|session|shared|service"
    r"|subscription|functions?|storage|deploy|publish|ssh|wpa|wifi|pre-?shared|product|recovery|host)[_ .-]?"
)
_LATIN_STEMS = (
    _Stem("pass", Sort.PASSWORD, r"word|wd|phrase|code|wort|ord(?![a-z])|key(?![a-z])", _ANYWHERE),
    _Stem("pass", Sort.PASSWORD, r"(?![A-Za-z])"),
    _Stem("pwd", Sort.PASSWORD, r"(?![A-Za-z])", _ANYWHERE),
    _Stem("pw", Sort.PASSWORD, r"(?![A-Za-z])"),
    _Stem("psk", Sort.PASSWORD, r"(?![A-Za-z])"),
    _Stem("kennwort", Sort.PASSWORD, before=_ANYWHERE),
    _Stem("mot", Sort.PASSWORD, r"[ _-]?de[ _-]?passe"),
    _Stem("mdp", Sort.PASSWORD, r"(?![A-Za-z])"),
    _Stem("contrase", Sort.PASSWORD, r"(?:ñ|n|ny)a"),
    _Stem("contrasenya", Sort.PASSWORD),
    _Stem("clave", Sort.WORD, r"(?![A-Za-z])"),
    _Stem("senha", Sort.PASSWORD),
    _Stem("palavra", Sort.PASSWORD, r"[ _-]passe"),
    _Stem("wachtwoord", Sort.PASSWORD, before=_ANYWHERE),
    _Stem("senord", Sort.PASSWORD, before=r"(?<![a-z])l[öo]"),
    _Stem("adgangskode", Sort.PASSWORD),
    _Stem("kodeord", Sort.PASSWORD),
    _Stem("salasana", Sort.PASSWORD),
    _Stem("hasło", Sort.PASSWORD),
    _Stem("haslo", Sort.PASSWORD),
    _Stem("heslo", Sort.PASSWORD),
    _Stem("jelsz", Sort.PASSWORD, r"[óo]"),
    _Stem("parol", Sort.WORD, r"(?:a(?: d.ordine)?|ă|ja|j)?(?![A-Za-z])"),
    _Stem("ifre", Sort.PASSWORD, r"(?:si|niz|m)?(?![A-Za-z])", r"(?<![a-z])[şs]"),
    _Stem("lozinka", Sort.PASSWORD),
    _Stem("geslo", Sort.PASSWORD),
    _Stem("slapta", Sort.PASSWORD, r"[žz]odis"),
    _Stem("parool", Sort.PASSWORD),
    _Stem("lykilor", Sort.PASSWORD, r"[ðd]"),
    _Stem("kh", Sort.PASSWORD, r"[ẩaâ]u(?![A-Za-z])", r"m[ậaâ]t ?"),
    _Stem("kata sandi", Sort.PASSWORD),
    _Stem("credential", Sort.PASSWORD),
    _Stem("secret", Sort.KEY, r"(?:[_ -]?(?:access[_ -]?)?key)?(?![A-Za-z])"),
    _Stem("secret", Sort.KEY, r"(?![A-Za-z])", r"(?:client|app|api|user|db)"),
    _Stem("key", Sort.KEY, r"(?![A-Za-z])", _KEY_BEFORE),
    _Stem("credential", Sort.KEY, r"s?"),
    _Stem("token", Sort.TOKEN, r"(?![A-Za-z])"),
    _Stem("token", Sort.TOKEN, r"(?![A-Za-z])", r"(?:auth|access|refresh|bearer|api|bot|csrf|session)"),
    _Stem("authorization", Sort.TOKEN),
    _Stem("cookie", Sort.TOKEN, r"(?![A-Za-z])"),
    _Stem("sessionid", Sort.TOKEN),
    _Stem("session_id", Sort.TOKEN),
    _Stem("phpsessid", Sort.TOKEN),
    _Stem("signature", Sort.TOKEN),
    _Stem("pin", Sort.PIN, r"(?:[ -]?(?:number|nummer|nr|no))?(?![A-Za-z])"),
    _Stem("otp", Sort.PIN, r"(?:[_ -]?code)?(?![A-Za-z])"),
    _Stem("verification code", Sort.PIN),
    _Stem("security code", Sort.PIN),
    _Stem("one-time code", Sort.PIN),
)  # fmt: skip
_GOES_ON = r"(?:-ド|[^\x00-\x7f：，。、；！？「」是为為はがを는은이가]{0,4})"
"""The rest of a word, or of two that have no blank between them."""
_OTHER_STEMS = (
    *(
        _Stem(stem, Sort.PASSWORD, _GOES_ON, _ANYWHERE)
        for stem in (
            *(
                "парoл",
                "лoзинк",
                "κωδικ",
                "συνθηματικ",
                "סיסמ",
                "كلمة",
                "كلمه",
                "کلمه",
                "گذرواژه",
                "رمز",
                "पासवर",
                "পাসও",
            ),
            *(
                "รหสผาน",
                "密码",
                "密碼",
                "口令",
                "通行码",
                "パスワ",
                "暗証",
                "비밀번호",
                "암호",
                "패스워",
                "գաղտնաբառ",
                "პაროლ",
            ),
        )
    ),
    *(_Stem(stem, Sort.KEY, before=_ANYWHERE) for stem in ("密钥", "密鑰", "金鑰", "秘钥", "令牌", "ключ api")),
    *(_Stem(stem, Sort.PIN, r"[^\x00-\x7f]{0,2}", _ANYWHERE) for stem in ("验证码", "驗證碼", "認証コ-ド", "인증번호")),
)
_MAX_BEFORE_CHARS = 24
_SUFFIX = re.compile(
    r"(?i)(?![_-]?(?:name|ids?|type|kind|count|len|length|limit|ttl|exp|expiry|expires|url|uri|path|file|polic(?:y|ie)|hint"
    r"|label|version|size|index|reset|strength|prefix|suffix|arn|min|max|age|days|rules?|field|input|column|format"
    r"|usage|rotation|required|enabled|izer)s?(?![a-z]))"
    r"(?:[_-][A-Za-z0-9_-]{1,24}|[0-9]{1,3}|s(?![A-Za-z]))?"
)
"""What may follow a name that still names a value. `token_type` and `password_url` do not."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    stem: str
    sort: Sort
    rest: re.Pattern[str]
    begins_word: bool
    before: re.Pattern[str] | None


def _compiled(stem: _Stem) -> _Compiled:
    before = re.compile(rf"(?i:{stem.before})\Z") if stem.before else None
    return _Compiled(stem.stem, stem.sort, re.compile(f"(?i:{stem.rest})"), stem.before is None, before)


class Names:
    """The names of credentials in a text."""

    def __init__(self) -> None:
        self._latin = tuple(map(_compiled, _LATIN_STEMS))
        self._all = (*self._latin, *map(_compiled, _OTHER_STEMS))

    def find(self, text: str, tick: Tick) -> Iterator[Name]:
        """Each name, with what belongs to it."""
        lowered = text.replace("\u0130", "I").lower()  # the one letter whose small form is longer than itself
        for stem in self._latin if is_latin(text) else self._all:
            at = lowered.find(stem.stem)
            while at != -1:
                tick()
                name = _at(text, at, stem)
                if name is not None:
                    yield name
                at = lowered.find(stem.stem, at + 1)


def _at(text: str, at: int, stem: _Compiled) -> Name | None:
    """The name whose stem stands at `at`, if it is one."""
    if stem.begins_word and not _begins_word(text, at):
        return None
    if stem.before is not None and stem.before.search(text, max(0, at - _MAX_BEFORE_CHARS), at) is None:
        return None
    rest = stem.rest.match(text, at + len(stem.stem))
    suffix = _SUFFIX.match(text, rest.end()) if rest else None
    return Name(at, suffix.end(), stem.sort, not suffix.group()) if suffix else None


def _begins_word(text: str, at: int) -> bool:
    before = text[at - 1 : at]
    return not (before.isascii() and before.isalpha()) or (before.islower() and text[at].isupper())
