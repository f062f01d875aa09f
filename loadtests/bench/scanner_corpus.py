"""The corpus of the scanner benchmark: specimens made from check-digit rules, and texts that only look like them.

Everything is generated from a seed. No number is taken from a person: each is drawn, and kept if its arithmetic
holds.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stdnum import get_cc_module, iban, luhn
from stdnum.es import nie
from stdnum.fr import nir

from loadtests.bench.scanner_numbers import NUMBERS
from router.privacy.recognisers.chinese import is_resident_id

Make = Callable[[random.Random], str]

LANGUAGES = ("English", "German", "French", "Russian", "Chinese", "Japanese")
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: how a specimen is made, its name in each language (empty: the specimen speaks for itself), whether a
    check digit proves it, and what it is called where the kind alone does not say."""

    kind: str
    make: Make
    names: tuple[str, ...] = ()
    has_checksum: bool = False
    title: str = ""


_PLAIN = (
    "Please use {} for the order.",
    "Bitte verwenden Sie {}, danke.",
    "Merci de noter {}, à bientôt.",
    "Запишите {} спасибо",
    "请使用{}，谢谢。",
    "{}をお願いします。",
)
_NAMED = (
    "My {1} is {0}, please check.",
    "Meine {1} ist {0}, danke.",
    "Mon {1} est {0}, merci.",
    "Мой {1}: {0} спасибо",
    "我的{1}是{0}，谢谢。",
    "私の{1}は{0}です。",
)


def _digits(draw: random.Random, count: int) -> str:
    return "".join(draw.choice("0123456789") for _ in range(count))


def _shaped(draw: random.Random, shape: str) -> str:
    """`9` becomes a digit, `A` a capital letter, anything else stays."""
    make = {"9": lambda: draw.choice("0123456789"), "A": lambda: draw.choice("ABCDEFGHJKLMNPRSTUVWXYZ")}
    return "".join(make[char]() if char in make else char for char in shape)


def _dated(draw: random.Random, order: str) -> str:
    values = {"d": f"{draw.randint(1, 28):02}", "m": f"{draw.randint(1, 12):02}", "y": f"{draw.randint(40, 99):02}"}
    return "".join(values[part] for part in order)


def _valid(country: str, name: str, make: Make) -> Make:
    """Draw until the arithmetic of that country's number holds."""
    module = get_cc_module(country, name)

    def drawn(draw: random.Random) -> str:
        while not module.is_valid(number := make(draw)):
            pass
        return number

    return drawn


def _card(draw: random.Random) -> str:
    prefixes = (("4", 16), ("51", 16), ("2221", 16), ("37", 15), ("6011", 16), ("62", 16), ("3530", 16))
    prefix, length = draw.choice(prefixes)
    body = prefix + _digits(draw, length - len(prefix) - 1)
    number = body + luhn.calc_check_digit(body)
    sizes = (4, 6, 5) if length == 15 else (4, 4, 4, 4)
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    parts = [number[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    return draw.choice(("", " ", "-", "\u00a0")).join(parts)


def _iban(draw: random.Random) -> str:
    bare = "DE00" + _digits(draw, 18) if draw.random() < 0.5 else "GB00WEST" + _digits(draw, 14)
    number = bare[:2] + iban.calc_check_digits(bare) + bare[4:]
    return number if draw.random() < 0.5 else " ".join(number[at : at + 4] for at in range(0, len(number), 4))


def _resident_id(draw: random.Random) -> str:
    head = f"110105{draw.randint(1950, 2005)}{draw.randint(1, 12):02}{draw.randint(1, 28):02}{_digits(draw, 3)}"
    return next(head + check for check in "0123456789X" if is_resident_id(head + check))


def _email(draw: random.Random) -> str:
    name = draw.choice(("maria.lopez", "j.smith+x", "o_k-1", "josé", "t.müller"))
    return (
        f"{name}{draw.randint(1, 99)}@{draw.choice(('example.com', 'mail.example.co.uk', '例子.广告', 'example.org'))}"
    )


def _phone(draw: random.Random) -> str:
    return draw.choice(
        (
            f"+49 170 {_digits(draw, 7)}",
            f"+1 415 55{draw.randint(2, 9)} {_digits(draw, 4)}",
            "+33 6 " + " ".join(f"{draw.randint(10, 99)}" for _ in range(4)),
            f"(415) 55{draw.randint(2, 9)}-{_digits(draw, 4)}",
            f"+81 90-{draw.randint(1000, 9999)}-{_digits(draw, 4)}",
        )
    )


def _ip(draw: random.Random) -> str:
    last = draw.randint(1, 254)
    return draw.choice(
        (f"203.0.113.{last}", f"89.160.{draw.randint(0, 255)}.{last}", f"2001:db8::{last:x}:{last + 9:x}")
    )


def _private_key(draw: random.Random) -> str:
    return f"-----BEGIN PRIVATE {'KEY'}-----\n{_token('MII', 60)(draw)}\n-----END PRIVATE {'KEY'}-----"


def _token(prefix: str, length: int) -> Make:
    return lambda draw: prefix + "".join(draw.choice(_ALPHABET) for _ in range(length))


def _nir(draw: random.Random) -> str:
    body = f"{draw.choice('12')}{draw.randint(40, 99)}{draw.randint(1, 12):02}{draw.randint(10, 95)}{_digits(draw, 6)}"
    return f"{body}{nir.calc_check_digits(body)}"


def _nie(draw: random.Random) -> str:
    body = draw.choice("XYZ") + _digits(draw, 7)
    return f"{body}{nie.calc_check_digit(body)}"


def _written(draw: random.Random) -> str:
    """A credential where programs keep one: an option, a variable, a tag, a field."""
    value = draw.choice(("Winter", "blueFin", "s3cret-", "Kx")) + _token("", 6)(draw) + _digits(draw, 2)
    return draw.choice(
        (
            f"mysql -u root -p{value} shop",
            f"curl -u bob:{value} https://api.acme.io",
            f"machine api.acme.io login bob password {value}",
            f"<password>{value}</password>",
            f'"api_key": "{value}"',
            f"{{'client_secret': '{value}'}}",
            f"export DB_PASSWORD={value}",
            f"wachtwoord: {value}",
            f"hasło: {value}",
            f"비밀번호: {value}",
            f"كلمة المرور: {value}",
            f"jdbc:postgresql://db/app?user=bob&password={value}",
        )
    )


KINDS = (
    Kind("card", _card, has_checksum=True),
    Kind("iban", _iban, has_checksum=True),
    Kind("cn_resident_id", _resident_id, has_checksum=True),
    Kind("es_nie", _nie, has_checksum=True),
    Kind("fr_nir", _nir, has_checksum=True),
    Kind("br_cpf", _valid("br", "cpf", lambda d: _shaped(d, "999.999.999-99")), has_checksum=True),
    Kind("cl_rut", _valid("cl", "rut", lambda d: _shaped(d, "99.999.999-9")), has_checksum=True),
    Kind(
        "no_fodselsnummer", _valid("no", "fodselsnummer", lambda d: _dated(d, "dmy") + _digits(d, 5)), has_checksum=True
    ),
    Kind(
        "se_personnummer",
        _valid("se", "personnummer", lambda d: f"{_dated(d, 'ymd')}-{_digits(d, 4)}"),
        has_checksum=True,
    ),
    Kind(
        "fi_hetu",
        _valid("fi", "hetu", lambda d: f"{_dated(d, 'dmy')}-{_digits(d, 3)}{_shaped(d, 'A')}"),
        has_checksum=True,
    ),
    Kind(
        "kr_rrn",
        _valid("kr", "rrn", lambda d: f"{_dated(d, 'ymd')}-{d.choice('12')}{_digits(d, 6)}"),
        has_checksum=True,
    ),
    Kind("ch_ahv", _valid("ch", "ssn", lambda d: _shaped(d, "756.9999.9999.99")), has_checksum=True),
    Kind(
        "za_identity",
        _valid("za", "idnr", lambda d: f"{_dated(d, 'ymd')}{_digits(d, 4)}0{d.choice('89')}{_digits(d, 1)}"),
        has_checksum=True,
    ),
    Kind(
        "pl_pesel", _valid("pl", "pesel", lambda d: _dated(d, "ymd") + _digits(d, 5)), ("PESEL",) * 6, has_checksum=True
    ),
    Kind("nl_bsn", _valid("nl", "bsn", lambda d: _shaped(d, "999999999")), ("BSN",) * 6, has_checksum=True),
    Kind(
        "de_tax_id",
        _valid("de", "idnr", lambda d: _shaped(d, "99999999999")),
        ("tax ID", "Steuer-ID", "Steuer-ID", "Steuer-ID", "税号", "Steuer-ID"),
        has_checksum=True,
    ),
    Kind(
        "jp_my_number",
        _valid("jp", "in_", lambda d: _digits(d, 12)),
        ("My Number", "My Number", "My Number", "My Number", "个人番号MyNumber", "マイナンバー"),
        has_checksum=True,
    ),
    Kind("gb_nhs", _valid("gb", "nhs", lambda d: _shaped(d, "999 999 9999")), ("NHS number",) * 6, has_checksum=True),
    Kind("au_tfn", _valid("au", "tfn", lambda d: _shaped(d, "999 999 999")), ("TFN",) * 6, has_checksum=True),
    Kind(
        "ro_cnp",
        _valid("ro", "cnp", lambda d: d.choice("12") + _dated(d, "ymd") + _digits(d, 6)),
        ("CNP",) * 6,
        has_checksum=True,
    ),
    Kind("email", _email),
    Kind("phone", _phone),
    Kind("us_ssn", lambda d: f"{d.randint(100, 665)}-{d.randint(10, 99)}-{d.randint(1000, 9999)}"),
    Kind("ip_address", _ip),
    Kind("mac_address", lambda d: "00:1a:" + ":".join(f"{d.getrandbits(8):02x}" for _ in range(4))),
    Kind(
        "password",
        lambda d: f"{_token('', 9)(d)}!{d.randint(0, 9)}a",
        ("password", "Passwort", "mot de passe", "пароль", "密码", "パスワード"),
    ),
    Kind("password", _written, title="password, written"),
    Kind("openai_key", _token("sk-proj-", 48)),
    Kind("github_token", _token("ghp_", 36)),
    Kind("google_key", _token("AIza", 35)),
    Kind("stripe_key", _token("sk_live_", 24)),
    Kind("jwt", lambda d: f"eyJ{_token('', 20)(d)}.eyJ{_token('', 40)(d)}.{_token('', 43)(d)}"),
    Kind("connection_string", lambda d: f"postgres://app:{_token('', 12)(d)}@db.example.org:5432/app"),
    Kind("private_key", _private_key),
)

_PROSE = (
    "In {y} the {n} crew flew {k:,} miles and were home after {m} hours, {p} minutes and {q} seconds.",
    "Im Jahr {y} kamen {k:,} Besucher, {m} Prozent mehr als zuvor; Seite {p} zeigt die Tabelle {q}.",
    "En {y}, le prix était de {m},{p} € le kilo, soit {q} % de plus, selon {k:,} réponses.",
    "В {y} году было {k} случаев, это на {m},{p} процента больше; см. главу {q}.",
    "人工智能在{y}年有了很大进步，例如第{p}章第{q}节提到的{k}个例子，占{m}%。",
    "{y}年の調査では{k}人が回答し、{m}％が賛成、{p}人が反対、第{q}章を参照。",
)
_CODE = (
    "for (int i = 0; i < {k}; i++) {{ sum += a[i] * 0x{h}; }} // {p} {q}",
    "const TIMEOUT_MS = {k}; export const size = [{m}, {p}, {q}];",
    "x = {f} * y + {g} / {m}  # see section {p}.{q}",
    "token = tokens[{p}]; password = form.get('password'); key = keys[{q}]",
    "pip install pkg=={p}.{q}.{m} && git checkout {h}",
    "@pytest.mark.parametrize('n', [{m}, {p}]) def test_{q}(n): assert n < {k}",
)
_LOGS = (
    "{y}-0{d}-1{d} 10:{p}:{q},{m} INFO [worker-{d}] took {k} ms, {m} OK, 10.2.{d}.{p}:{k} -> 10.0.0.{d}:443",
    "127.0.0.1 - - [0{d}/Mar/{y}:10:{p}:{q} +0000] \"GET /v1/items/{k} HTTP/1.1\" 200 {m}",
    "level=warn ts={e} caller=main.go:{m} msg=\"retry in {q}ms\" attempt={d} trace={h}",
    "kernel: [{k}.{m}] usb {d}-{d}: new device number {p} using xhci_hcd",
    "#{p} order {o} shipped, invoice no. {o}, ticket {p}-{k}, part {m}-{k}",
)  # fmt: skip
_IDS: tuple[Make, ...] = (
    lambda d: str(uuid.UUID(int=d.getrandbits(128))),
    lambda d: f"sha256:{d.getrandbits(256):064x}",
    lambda d: f"{d.getrandbits(160):040x} Fix off-by-one in the parser",
    lambda d: f'md5 {d.getrandbits(128):032x}, crc32 {d.getrandbits(32):08x}, etag "{d.getrandbits(64):016x}"',
    lambda d: f"2026-{d.randint(1, 12):02}-{d.randint(1, 28):02}T10:30:00.{_digits(d, 6)}Z",
    lambda d: (
        f"at {1_700_000_000_000 + d.getrandbits(36)}, {1_700_000_000 + d.getrandbits(26)}: {d.randint(1, 9999)} ms"
    ),
    lambda d: f"values = [{', '.join(str(d.random()) for _ in range(6))}]",
    lambda d: f"row {' '.join(str(d.randint(0, 999)) for _ in range(8))}",
    lambda d: f"pkg@{d.randint(0, 9)}.{d.randint(0, 30)}.{d.randint(0, 9)} (user@host:path)",
    lambda d: f"order #{_digits(d, 10)} part {_digits(d, 4)}-{_digits(d, 5)}",
    lambda d: f"blob {''.join(d.choice(_ALPHABET + '+/') for _ in range(80))}",
)


def positives(kind: Kind, draw: random.Random, count: int) -> Iterator[str]:
    """`count` texts that hold one specimen each, in all languages in turn."""
    for index in range(count):
        at = index % len(LANGUAGES)
        if kind.names:
            yield _NAMED[at].format(kind.make(draw), kind.names[at])
        else:
            yield _PLAIN[at].format(kind.make(draw))


LIKE_CARDS = "numbers: transactions"
"""The sort whose numbers of sixteen digits an issuer could have given out, one in thirty of them: no rule tells those
from cards (docs/explanation/privacy.md)."""


def negatives(draw: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """`count` pairs of a sort (prose, code, log, id, numbers) and a text that holds nothing."""
    numbers = tuple(NUMBERS.items())
    for index in range(count):
        if index % 5 == 4:
            name, make = numbers[index // 5 % len(numbers)]
            yield f"numbers: {name}", make(draw)
            continue
        sort = ("prose", "code", "log", "id")[index % 5]
        if sort == "id":
            yield sort, draw.choice(_IDS)(draw)
        else:
            yield sort, draw.choice({"prose": _PROSE, "code": _CODE, "log": _LOGS}[sort]).format(**_fill(draw))


def _fill(draw: random.Random) -> dict[str, object]:
    return {
        "y": draw.randint(1900, 2030),
        "n": draw.randint(2, 9),
        "k": draw.randint(1_000, 9_999_999),
        "m": draw.randint(100, 999),
        "p": draw.randint(10, 59),
        "q": draw.randint(10, 59),
        "d": draw.randint(1, 9),
        "h": f"{draw.getrandbits(64):016x}",
        "f": draw.random(),
        "g": draw.random(),
        "e": 1_700_000_000 + draw.random() * 1e8,
        "o": _digits(draw, 11),
    }
