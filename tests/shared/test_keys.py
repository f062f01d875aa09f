"""AU-01: how a bearer header is read, and that a key appears nowhere but in the comparison."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shared import keys
from shared.errors import Forbidden, Unauthenticated
from shared.http.errors import error_response
from shared.keys import ApiKey, Scope

KEY = "isk-Correct-Horse-0123456789"
KNOWN = (
    ApiKey("other", keys.hashed("isk-other"), frozenset({Scope.ADMIN})),
    ApiKey("app", keys.hashed(KEY), frozenset({Scope.INFERENCE})),
)


@pytest.mark.parametrize("value", [f"bearer {KEY}", f"BEARER   {KEY}", f"Bearer {KEY}", f"Bearer {KEY}  "])
def test_au_01_the_scheme_has_no_letter_case(value: str) -> None:
    assert keys.authenticate([value], KNOWN).name == "app"


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        [f"Bearer{KEY}"],
        [f"Basic {KEY}"],
        [KEY],
        [f"Bearer {KEY}", f"Bearer {KEY}"],
        [f"Bearer {KEY.lower()}"],
        [f"Bearer {KEY.upper()}"],
        [f"Bearer {KEY}é"],
        ["Bearer ключ"],
        ["Bearer \udcff"],
        [f"Bearer {KEY} {KEY}"],
        [f"Bearer\t{KEY}"],
        [f"Bearer,{KEY}"],
        [f"XBearer {KEY}"],
        [f"Bearer {'x' * 100_000}"],
        [f"Bearer {KEY[:-1]}"],
    ],
    ids=lambda values: repr(values)[:40],
)
def test_au_01_everything_else_is_401_and_echoes_nothing(values: list[str]) -> None:
    with pytest.raises(Unauthenticated) as caught:
        keys.authenticate(values, KNOWN)
    assert caught.value.status == 401
    assert KEY.lower() not in caught.value.message.lower()
    assert error_response(caught.value).headers["WWW-Authenticate"] == "Bearer"


def _bearers(path: str, *, bearers: Sequence[str] = (), plain: Sequence[str] = ()) -> Sequence[str]:
    return keys.bearers_in(path, lambda name: {"authorization": bearers, "x-api-key": plain}[name])


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/models", "/v1/models/m"])
def test_au_01_a_key_may_come_as_anthropics_clients_send_it(path: str) -> None:
    for bearers in ([], [f"Bearer {KEY}"], [f"bearer  {KEY}"]):
        assert keys.authenticate(_bearers(path, bearers=bearers, plain=[KEY]), KNOWN).name == "app"
    assert keys.authenticate(_bearers(path, bearers=[f"Bearer {KEY}"]), KNOWN).name == "app"


@pytest.mark.parametrize(
    ("bearers", "plain"),
    [
        ([], [""]),
        ([], [KEY, KEY]),
        ([], [f"Bearer {KEY}"]),
        ([], [f"{KEY}é"]),
        ([], ["\udcff"]),
        ([], ["x" * 100_000]),
        ([], [KEY.lower()]),
        (["Bearer isk-other"], [KEY]),
        ([f"Bearer {KEY}"], ["isk-other"]),
        ([f"Bearer {KEY}"], [""]),
        (["Basic x"], [KEY]),
        ([f"Bearer {KEY}", f"Bearer {KEY}"], [KEY]),
    ],
    ids=lambda values: repr(values)[:40],
)
def test_au_01_two_keys_or_what_is_none_is_401(bearers: list[str], plain: list[str]) -> None:
    with pytest.raises(Unauthenticated) as caught:
        keys.authenticate(_bearers("/v1/messages", bearers=bearers, plain=plain), KNOWN)
    assert KEY.lower() not in caught.value.message.lower() and "isk-other" not in caught.value.message


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messagesx", "/admin/v1/fleet", "/metrics", "/"])
def test_au_01_elsewhere_that_header_may_be_a_gateways_and_says_nothing(path: str) -> None:
    assert keys.authenticate(_bearers(path, bearers=[f"Bearer {KEY}"], plain=["theirs"]), KNOWN).name == "app"
    with pytest.raises(Unauthenticated):
        keys.authenticate(_bearers(path, plain=[KEY]), KNOWN)


def test_au_01_every_known_hash_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    real = keys.hmac.compare_digest

    def counting(left: str, right: str) -> bool:
        compared.append(right)
        return real(left, right)

    monkeypatch.setattr(keys.hmac, "compare_digest", counting)
    keys.authenticate(["Bearer isk-other"], KNOWN)
    assert compared == [key.sha256 for key in KNOWN]


def test_scopes_allow_what_they_name() -> None:
    app = KNOWN[1]
    keys.require(app, Scope.INFERENCE)
    for scope in set(Scope) - {Scope.INFERENCE}:
        with pytest.raises(Forbidden) as caught:
            keys.require(app, scope)
        assert caught.value.status == 403


def test_without_keys_everything_but_loosening_privacy_is_open() -> None:
    for scope in set(Scope) - {Scope.PRIVACY_OVERRIDE}:
        keys.require(None, scope)
    with pytest.raises(Forbidden):
        keys.require(None, Scope.PRIVACY_OVERRIDE)


def test_generated_keys_differ_and_can_be_used() -> None:
    made = {keys.generate() for _ in range(50)}
    assert len(made) == 50
    for key in made:
        assert keys.bearer_of([f"Bearer {key}"]) == key


def test_a_key_shows_no_secret_when_printed() -> None:
    assert KEY not in repr(KNOWN)
