"""Identity, tax and insurance numbers of persons, by country: how they are written, and their check digits.

The arithmetic is that of `stdnum`. A number whose writing or check leaves little to chance counts by itself; one that
every tenth number would pass counts only near a word that says what it is.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from stdnum import luhn

from router.privacy.normalise import Span
from router.privacy.recognisers.column_heads import ColumnHeads
from router.privacy.recognisers.model import Recogniser, Tick, inside_uuid
from router.privacy.recognisers.nearby import (
    ANY_IDENTITY,
    is_in_row,
    is_joined,
    is_other_number,
    named,
    names_other,
    triggers_of,
    words,
)
from shared.privacy import PrivacyClass

Check = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class _Number:
    """One number. `alone` is a writing that counts by itself, `bare` one that needs a word of `names` nearby (a
    pattern), both without regard to what touches them. `check` is a module of `stdnum`, or the check itself."""

    kind: str
    check: str | Check
    alone: str = ""
    bare: str = ""
    names: str = ""


def _luhn_of_nine(number: str) -> bool:
    return len(number) == 9 and luhn.is_valid(number)


def _singapore(number: str) -> bool:
    """NRIC and FIN: weighted sum modulo 11 to one of two rows of letters."""
    total = sum(w * int(d) for w, d in zip((2, 7, 6, 5, 4, 3, 2), number[1:8], strict=True))
    total += {"S": 0, "F": 0, "T": 4, "G": 4, "M": 3}[number[0]]
    row = {"S": "JZIHGFEDCBA", "T": "JZIHGFEDCBA", "F": "XWUTRQPNMLK", "G": "XWUTRQPNMLK", "M": "XWUTRQPNJLK"}[
        number[0]
    ]
    at = total % 11
    return row[10 - at if number[0] == "M" else at] == number[8]


def _hong_kong(number: str) -> bool:
    """HKID: letters as 10 to 35 and digits, weights 9 to 1, divisible by 11; a single letter has a blank before it."""
    padded = number.rjust(9)
    values = [36 if c == " " else int(c, 36) for c in padded[:8]]
    total = sum(w * v for w, v in zip(range(9, 1, -1), values, strict=True))
    return (total + (10 if padded[8] == "A" else int(padded[8], 36))) % 11 == 0


def _taiwan(number: str) -> bool:
    """The letter stands for two digits; weights 1, 9 to 1, 1, divisible by 10."""
    code = "ABCDEFGHJKLMNPQRSTUVXYWZIO".index(number[0]) + 10
    digits = [code // 10, code % 10, *map(int, number[1:])]
    return sum(w * d for w, d in zip((1, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1), digits, strict=True)) % 10 == 0


def _snils(number: str) -> bool:
    """Russian insurance number: weights 9 to 1 over nine digits, modulo 101."""
    total = sum(w * int(d) for w, d in zip(range(9, 0, -1), number[:9], strict=True)) % 101
    return total % 100 == int(number[9:])


def _anything(number: str) -> bool:
    return len(set(number)) > 2


_NUMBERS = (
    _Number("ad_nrt", "ad.nrt", bare=r"[A-Z]-?[0-9]{6}-?[A-Z]", names=r"\bnrt\b"),
    _Number("ar_cuit", "ar.cuit", r"(?:20|23|24|27)-[0-9]{8}-[0-9]", r"(?:20|23|24|27)[0-9]{9}", r"cui[tl]"),
    _Number("ar_dni", "ar.dni", bare=r"[0-9]{2}\.[0-9]{3}\.[0-9]{3}|[0-9]{8}", names=r"\bdni\b|documento"),
    _Number("at_svnr", "at.vnr", bare=r"[1-9][0-9]{3}[ -]?[0-9]{6}", names=r"\bsv[ -]?n|svnr|versicherung"),
    _Number("au_tfn", "au.tfn", bare=r"[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{2,3}", names=r"\btfn\b|tax file"),
    _Number(
        "be_national",
        "be.nn",
        r"[0-9]{2}\.[0-9]{2}\.[0-9]{2}-[0-9]{3}\.[0-9]{2}"
        r"|[0-9]{6}[ -]?[0-9]{3}[ -]?[0-9]{2}",
        names=r"rijksregister|registre national|niss|insz",
    ),
    _Number("bg_egn", "bg.egn", bare=r"[0-9]{10}", names=r"\begn\b|егн"),
    _Number(
        "br_cpf", "br.cpf", r"[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}", r"[0-9]{9}-?[0-9]{2}", r"\bcpf\b|contribuinte"
    ),
    _Number(
        "ca_sin", _luhn_of_nine, bare=r"[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{3}", names=r"\bsin\b|\bnas\b|assurance sociale"
    ),
    _Number(
        "ch_ahv",
        "ch.ssn",
        r"756\.[0-9]{4}\.[0-9]{4}\.[0-9]{2}|756[ ]?[0-9]{4}[ ]?[0-9]{4}[ ]?[0-9]{2}",
        names=r"\bahv\b|\bavs\b",
    ),
    _Number("cl_rut", "cl.rut", r"[0-9]{1,2}\.[0-9]{3}\.[0-9]{3}-[0-9Kk]", r"[0-9]{7,8}-?[0-9Kk]", r"\bru[tn]\b"),
    _Number("co_nit", "co.nit", bare=r"[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]|[0-9]{9}-?[0-9]", names=r"\bnit\b"),
    _Number("cr_cedula", "cr.cpf", bare=r"[0-9]-?[0-9]{4}-?[0-9]{4}", names=r"c[ée]dula"),
    _Number("cu_identity", "cu.ni", bare=r"[0-9]{11}", names=r"carn[ée]|\bni\b"),
    _Number("cz_birth_number", "cz.rc", r"[0-9]{6}/[0-9]{4}", r"[0-9]{9,10}", r"rodn[ée]|\brč\b"),
    _Number(
        "de_tax_id",
        "de.idnr",
        r"[1-9][0-9] [0-9]{3} [0-9]{3} [0-9]{3}",
        r"[1-9][0-9]{10}",
        r"steuer|\bidnr|\btin\b|tax id",
    ),
    _Number("dk_cpr", "dk.cpr", r"[0-3][0-9][01][0-9]{3}-[0-9]{4}", r"[0-3][0-9][01][0-9]{7}", r"\bcpr\b|personnummer"),
    _Number("do_cedula", "do.cedula", r"[0-9]{3}-[0-9]{7}-[0-9]", r"[0-9]{11}", r"c[ée]dula"),
    _Number("ec_cedula", "ec.ci", bare=r"[0-9]{9}-?[0-9]", names=r"c[ée]dula|\bci\b"),
    _Number(
        "ee_isikukood",
        "ee.ik",
        r"(?:[34][0-9]|[56][0-3])[0-9](?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[0-9]{4}",
        names=r"isikukood",
    ),
    _Number(
        "es_dni", "es.dni", r"[0-9]{2}\.?[0-9]{3}\.?[0-9]{3}[ -]?[A-HJ-NP-TV-Za-hj-np-tv-z]", names=r"\bdni\b|\bnif\b"
    ),
    _Number("es_nie", "es.nie", r"[XYZxyz][ -]?[0-9]{7}[ -]?[A-HJ-NP-TV-Za-hj-np-tv-z]", names=r"\bnie\b"),
    _Number(
        "fi_hetu",
        "fi.hetu",
        r"[0-3][0-9][01][0-9]{3}[-+A-FU-Ya-fu-y][0-9]{3}[0-9A-FHJ-NPR-Ya-fhj-npr-y]",
        names=r"hetu|henkil",
    ),
    _Number(
        "fr_nir",
        "fr.nir",
        r"[12][ ]?[0-9]{2}[ ]?(?:0[1-9]|1[0-2]|[2-9][0-9])[ ]?[0-9][0-9AB][ ]?[0-9]{3}[ ]?[0-9]{3}[ ]?[0-9]{2}",
        names=r"\bnir\b|s[ée]cu",
    ),
    _Number("gb_nhs", "gb.nhs", bare=r"[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{4}", names=r"\bnhs\b|health service"),
    _Number(
        "gb_nino",
        _anything,
        r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z][ -]?[0-9]{2}[ -]?[0-9]{2}[ -]?[0-9]{2}[ -]?[A-D]",
        names=r"\bnino\b|national insurance",
    ),
    _Number("gb_utr", "gb.utr", bare=r"[0-9]{5}[ ]?[0-9]{5}", names=r"\butr\b|taxpayer ref"),
    _Number("gr_amka", "gr.amka", r"[0-3][0-9][01][0-9]{8}", names=r"amka|αμκα"),
    _Number(
        "hk_identity",
        _hong_kong,
        r"[A-Z]{1,2}[0-9]{6} ?[(（][0-9A][)）]",
        r"[A-Z]{1,2}[0-9]{6}[0-9A]",
        r"hkid|hong kong|香港",
    ),
    _Number("hr_oib", "hr.oib", bare=r"[0-9]{11}", names=r"\boib\b"),
    _Number("id_nik", "id.nik", bare=r"[0-9]{16}", names=r"\bnik\b|\bktp\b"),
    _Number("ie_pps", "ie.pps", r"[0-9]{7}[ ]?[A-W][A-IW]?", names=r"\bpps"),
    _Number("il_identity", "il.idnr", bare=r"[0-9]{8}-?[0-9]", names=r"teudat|zehut|israel|ת\"?ז|תעודת"),
    _Number(
        "in_aadhaar",
        "in_.aadhaar",
        r"[2-9][0-9]{3} [0-9]{4} [0-9]{4}",
        r"[2-9][0-9]{3}[ -]?[0-9]{4}[ -]?[0-9]{4}",
        r"aadhaa?r|uid(?:ai)?\b|आधार",
    ),
    _Number("in_pan", "in_.pan", r"[A-Z]{3}[ABCFGHLJPT][A-Z][0-9]{4}[A-Z]", names=r"\bpan\b"),
    _Number(
        "is_kennitala", "is_.kennitala", r"[0-7][0-9][01][0-9]{3}-[0-9]{4}", r"[0-7][0-9][01][0-9]{7}", r"kennital"
    ),
    _Number(
        "it_codice_fiscale",
        "it.codicefiscale",
        r"[A-Za-z]{6}[0-9LMNP-Vlmnp-v]{2}[A-EHLMPR-Ta-ehlmpr-t][0-9LMNP-Vlmnp-v]{2}"
        r"[A-Za-z][0-9LMNP-Vlmnp-v]{3}[A-Za-z]",
        names=r"codice fiscale",
    ),
    _Number(
        "jp_my_number", "jp.in_", bare=r"[0-9]{4}[ -]?[0-9]{4}[ -]?[0-9]{4}", names=r"my ?number|マイナンバー|個人番号"
    ),
    _Number(
        "kr_rrn",
        "kr.rrn",
        r"[0-9]{2}[01][0-9][0-3][0-9]-[0-9]{7}",
        r"[0-9]{2}[01][0-9][0-3][0-9][0-9]{7}",
        r"주민|\brrn\b|resident reg",
    ),
    _Number("lt_asmens_kodas", "lt.asmens", bare=r"[1-6][0-9]{10}", names=r"asmens|kodas"),
    _Number(
        "lv_personal_code", "lv.pvn", r"[0-3][0-9][01][0-9]{3}-[0-9]{5}", r"[0-3][0-9][01][0-9]{8}", r"personas|kods"
    ),
    _Number("mx_curp", "mx.curp", r"[A-Z][AEIOUX][A-Z]{2}[0-9]{6}[HMX][A-Z]{5}[A-Z0-9][0-9]", names=r"curp"),
    _Number(
        "my_nric",
        "my.nric",
        r"[0-9]{2}[01][0-9][0-3][0-9]-[0-9]{2}-[0-9]{4}",
        r"[0-9]{2}[01][0-9][0-3][0-9]{7}",
        r"mykad|nric|kad pengenalan|\bic\b",
    ),
    _Number("nl_bsn", "nl.bsn", bare=r"[0-9]{4}\.?[0-9]{2}\.?[0-9]{3}|[0-9]{8}", names=r"\bbsn\b|burgerservice|sofi"),
    _Number(
        "no_fodselsnummer", "no.fodselsnummer", r"[0-7][0-9][0-9]{4}[ -]?[0-9]{5}", names=r"f[øo]dselsn|personnummer"
    ),
    _Number("nz_ird", "nz.ird", bare=r"[0-9]{2,3}[ -]?[0-9]{3}[ -]?[0-9]{3}", names=r"\bird\b"),
    _Number("pe_cui", "pe.cui", bare=r"[0-9]{8}-?[0-9A-K]", names=r"\bdni\b|\bcui\b"),
    _Number("pk_cnic", "pk.cnic", r"[1-7][0-9]{4}-[0-9]{7}-[0-9]", r"[1-7][0-9]{12}", r"cnic"),
    _Number("pl_pesel", "pl.pesel", bare=r"[0-9]{11}", names=r"pesel"),
    _Number("pt_nif", "pt.nif", bare=r"[1-3568-9][0-9]{2}[ ]?[0-9]{3}[ ]?[0-9]{3}", names=r"\bnif\b|contribuinte"),
    _Number("ro_cnp", "ro.cnp", bare=r"[1-9][0-9]{12}", names=r"\bcnp\b|cod numeric"),
    _Number("ru_inn", "ru.inn", bare=r"[0-9]{12}", names=r"\binn\b|инн"),
    _Number("ru_snils", _snils, r"[0-9]{3}-[0-9]{3}-[0-9]{3}[ -][0-9]{2}", r"[0-9]{11}", r"snils|снилс"),
    _Number(
        "se_personnummer",
        "se.personnummer",
        r"(?:19|20)?[0-9]{2}[01][0-9][0-9]{2}[-+][0-9]{4}",
        r"(?:19|20)?[0-9]{2}[01][0-9]{7}",
        r"person(?:nummer|nr)|samordning",
    ),
    _Number("sg_nric", _singapore, r"[STFGM][0-9]{7}[A-Z]", names=r"nric"),
    _Number("si_emso", "si.emso", bare=r"[0-3][0-9][01][0-9]{10}", names=r"em[šs]o|jmbg|мбг|matični"),
    _Number("sk_birth_number", "sk.rc", bare=r"[0-9]{6}/?[0-9]{3,4}", names=r"rodn[ée]"),
    _Number("th_pin", "th.pin", r"[0-9]-[0-9]{4}-[0-9]{5}-[0-9]{2}-[0-9]", r"[0-9]{13}", r"บัตร|ประชาชน|thai"),
    _Number("tr_tckn", "tr.tckimlik", bare=r"[1-9][0-9]{10}", names=r"\bt\.?c\.?\b|kimlik|tckn"),
    _Number("tw_identity", _taiwan, r"[A-Z][1289][0-9]{8}", names=r"taiwan"),
    _Number("ua_tax_number", "ua.rntrc", bare=r"[0-9]{10}", names=r"рнокпп|[іi]пн|rnokpp|\bipn\b"),
    _Number("us_itin", "us.itin", r"9[0-9]{2}-[0-9]{2}-[0-9]{4}", r"9[0-9]{2}[ -]?[0-9]{2}[ -]?[0-9]{4}", r"\bitin\b"),
    _Number("uy_rut", "uy.rut", bare=r"[0-9]{12}", names=r"\brut\b"),
    _Number("ve_rif", "ve.rif", r"[VEJPGvejpg]-[0-9]{8}-[0-9]", r"[VEJPGvejpg][0-9]{9}", r"\brif\b"),
    _Number("vn_cccd", _anything, bare=r"0[0-9]{11}", names=r"cccd|căn cước|cmnd"),
    _Number("za_identity", "za.idnr", r"[0-9]{2}[01][0-9][0-3][0-9] ?[0-9]{4} ?[01][89][0-9]", names=r"south africa"),
    _Number(
        "passport",
        _anything,
        bare=r"[A-Z]{1,2}[ ]?[0-9]{6,8}|[0-9]{9}|[0-9]{2}[A-Z]{2}[0-9]{5}",
        names=r"passport|reisepass|passeport|pasaporte|passaporto|паспорт|护照|護照|旅券|パスポート|여권",
    ),
)
_GROUPING = re.compile(r"[ .\-/()（）]")
_WIDE = re.compile("[（）]")
"""Of a set of characters in a writing; the one-pass database sees any other than ASCII as `?`."""
NAMES = tuple(number.names for number in _NUMBERS if number.names)
"""Patterns of the words that name such numbers."""


def _valid(check: Check, number: str) -> bool:
    try:
        return check(number)
    except (KeyError, ValueError, IndexError):  # a country's table has no such place or letter
        return False


@cache
def _check_of(number: _Number) -> Check:
    """The check of a number. The arithmetic of a country is loaded when the first candidate is met."""
    if not isinstance(number.check, str):
        check = number.check
        return lambda written: check(_GROUPING.sub("", written).upper())
    is_valid: Check = importlib.import_module(f"stdnum.{number.check}").is_valid
    return is_valid


def _edged(writing: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![0-9A-Za-z])(?:{writing})(?![0-9A-Za-z])")


def _triggers(number: _Number, names: str) -> Iterator[bytes]:
    """What counts by itself fires by its writing. What needs a word fires by the word, which is rarer than digits; a
    word of another script cannot fire, but is seen before the digits."""
    if number.alone:
        yield f"(?:{_WIDE.sub('?', number.alone)})".encode()
    if number.bare:
        yield from triggers_of(names)
        bare = b"(?:" + number.bare.encode() + b")"
        yield rb"\?[ :=.#\-\"'`|*,;()\[\t\r\n]{0,6}(?:No[. ]{1,2})?" + bare
        yield bare + rb"[ (]{0,2}\?"


def _recogniser(number: _Number) -> Recogniser:
    alone = _edged(number.alone) if number.alone else None
    bare = _edged(number.bare) if number.bare else None
    names = tuple(filter(None, (number.names, "" if number.kind == "passport" else ANY_IDENTITY)))

    def counts(text: str, span: Span) -> bool:
        return _valid(_check_of(number), text[span[0] : span[1]]) and not inside_uuid(text, *span)

    def is_accident(text: str, span: Span, heads: ColumnHeads) -> bool:
        """Whether a sign, a word or the head of its column says of this number that it is another. Numbers beside it
        say nothing: anybody could put them there."""
        if is_joined(text, *span) or is_other_number(text, *span, names) or is_in_row(text, *span):
            return True
        name = heads.over(span[0])
        return name is not None and names_other(name) and not any(words(each).search(name) for each in names)

    def find(text: str, tick: Tick) -> Iterator[Span]:
        seen: set[Span] = set()
        heads = ColumnHeads(text)
        for match in alone.finditer(text) if alone else ():
            tick()
            span = match.span()
            seen.add(span)
            said = bool(number.names) and named(text, *span, names)
            if counts(text, span) and (said or not is_accident(text, span, heads)):
                yield span
        for match in bare.finditer(text) if bare else ():
            tick()
            span = match.span()
            if (
                span not in seen
                and named(text, *span, names)
                and not is_other_number(text, *span, names)
                and counts(text, span)
            ):
                yield span

    score = 0.95 if alone else 0.85
    return Recogniser(number.kind, PrivacyClass.PERSONAL, tuple(_triggers(number, "|".join(names))), find, score)


def recognisers() -> tuple[Recogniser, ...]:
    """One recogniser a number."""
    return tuple(_recogniser(number) for number in _NUMBERS)
