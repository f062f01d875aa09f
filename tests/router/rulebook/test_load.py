"""Policy files that are refused, with the place and the name that would have been right; and what others say."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.policy.model import Mode, Policy, Route
from router.policy.written import digest_of, read_back, written_down
from router.rulebook.defaults import PolicyDefaults
from router.rulebook.document import DAYS, TimeWindow
from router.rulebook.load import Vocabulary, looked_for, parse, policy_of, read
from shared.errors import SettingsError
from shared.fleet import Zone
from shared.privacy import Action, PrivacyClass
from tests.router.policy.builders import policies

KNOWN = Vocabulary(kinds=frozenset({"card", "email", "iban"}), keys=frozenset({"app-web", "ops"}))
PATH = Path("policy.yaml")


def loaded(text: str, base: PolicyDefaults | None = None, known: Vocabulary = KNOWN) -> Policy:
    raw = text.encode()
    return policy_of(parse(raw, PATH), base or PolicyDefaults(), known, PATH, raw)


def rule(match: str = "{}", act: str = "{action: block}") -> str:
    return f"rules:\n  - name: r\n    match: {match}\n    act: {act}\n"


REFUSED = {
    "unknown field": (rule("{clas: personal}"), "line 3", "Did you mean class?"),
    "unknown class": (rule("{class: persnal}"), "line 3", "Did you mean personal?"),
    "unknown action": (rule(act="{action: edgeonly}"), "line 4", "Did you mean edge_only?"),
    "unknown zone": (rule(act="{zones: [devise]}"), "line 4", "Did you mean device?"),
    "unknown mode": (rule(act="{mode: fast}"), "line 4", "Did you mean fastest?"),
    "unknown kind": (rule("{entities: cards}"), "line 3", "Did you mean card?"),
    "unknown kind alone": (rule("{only_entities: [mail]}"), "only_entities", "Did you mean email?"),
    "unknown kind to mask": (rule("{class: personal}", "{action: mask, mask: [ibam]}"), "act.mask", "iban?"),
    "unknown feature": (rule("{features: tool}"), "line 3", "Did you mean tools?"),
    "unknown key": (rule("{key: app-wep}"), "line 3", "Did you mean app-web?"),
    "unknown route": (rule("{route: clowd}"), "line 3", "Did you mean cloud?"),
    "unknown day": (rule("{time: {days: [mo]}}"), "line 3", "Did you mean mon?"),
    "unknown default": ("defaults: {mod: fastest}\n", "line 1", "Did you mean mode?"),
    "unknown class among the defaults": ("defaults: {actions: {publik: any}}\n", "line 1", "Did you mean public?"),
    "unknown section": ("rulez: []\n", "line 1", "Did you mean rules?"),
    "unknown time zone": ("time_zone: Europe/Berln\n", "line 1", "Did you mean Europe/Berlin?"),
    "unknown rule in a case": (rule() + "cases: [{name: c, expect: {rule: s}}]\n", "line 5", "Known: r."),
    "unknown expectation": ("cases: [{name: c, expect: {teir: edge}}]\n", "line 1", "Did you mean tier?"),
    "no act": ("rules: [{name: r}]\n", "rules.0.act", "required"),
    "empty act": (rule(act="{}"), "line 4", "must do something"),
    "empty list": (rule("{model: []}"), "line 3", "at least 1"),
    "two rules of one name": (
        "rules:\n- {name: r, act: {mode: fastest}}\n- {name: s, act: {zones: site}}\n- act: {zones: site}\n  name: r\n",
        "line 5", "rules.2.name: another rule is named r, in line 2"),
    "a name twice": ("version: 1\nrules: []\nrules: []\n", "line 3", "twice"),
    "an hour without minutes": (rule("{time: {from: 8}}"), "line 3", "HH:MM"),
    "an hour that is none": (rule('{time: {from: "25:00"}}'), "line 3", "HH:MM"),
    "an empty window": (rule('{time: {from: "08:00", until: "08:00"}}'), "line 3", "same time"),
    "an empty range": (rule("{prompt_tokens: {at_least: 5, at_most: 4}}"), "line 3", "greater"),
    "a cap of nothing": (rule(act="{output_cap_tokens: 0}"), "line 4", "greater than"),
    "a cap beyond any model": (rule(act="{output_cap_tokens: 99999999999999999999}"), "line 4", "less than"),
    "a cap of yes": (rule(act="{output_cap_tokens: true}"), "line 4", "integer"),
    "mask without masking": (rule(act="{action: block, mask: [card]}"), "line 4", "mask"),
    "another version": ("version: 2\n", "line 1", "version"),
    "no mapping": ("[1]\n", "line 1", "mapping"),
    "nothing": ("", "line 1", "empty"),
    "comments alone": ("# later\n\n", "line 1", "empty"),
    "a document of nothing": ("---\n", "line 2", "mapping"),
    "a character that YAML refuses": ("version: 1\n# \x07\n", "line 2", "special characters"),
    "no YAML": ("rules: [\n", "line 2", ""),
    "a tag": ("rules: !!python/object:os.system x\n", "line 1", ""),
    "a text for a number": ("defaults: {dwell_ms: soon}\n", "line 1", "integer"),
    "not finite": ("defaults: {slo: {ttft_ms: .inf}}\n", "line 1", "finite"),
    "a class that may do more than a looser one": ("defaults: {actions: {secret: any}}\n", "line 1", "stricter"),
    "widening without a class": (rule(act="{action: any}"), "line 4", "match.class"),
    "widening unknown": (rule("{class: unknown}", "{action: any}"), "rules.r", "nobody knows"),
    "widening for one kind among others": (
        rule("{class: personal, entities: card}", "{action: any}"), "rules.r.match.entities", "only_entities"),
    "widening the stricter class alone": (rule("{class: secret}", "{action: any}"), "rules.r", "less strict"),
    "a pattern that looks around": (
        "version: 1\npatterns:\n- {kind: a, pattern: x+}\n- {kind: b, pattern: '(?=x)y'}\n", "line 4", "look-around"),
    "a pattern that matches nothing": ("patterns: [{kind: a, pattern: 'x*'}]\n", "line 1", "empty text"),
    "a list without words": ("word_lists:\n- {kind: a, words: [' ']}\n", "line 2", "no words"),
    "a kind of a pattern, misspelt": (
        "patterns: [{kind: badge, pattern: x}]\n" + rule("{entities: bagde}"), "line 4", "Did you mean badge?"),
    "a class of a pattern that is none": (
        "patterns: [{kind: a, pattern: x, privacy_class: public}]\n", "line 1", "personal"),
    "a file of words": ("word_lists: [{kind: a, file: /etc/passwd}]\n", "line 1", "no such name"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_file_is_refused_with_place_and_advice(case: str) -> None:
    text, place, advice = REFUSED[case]
    with pytest.raises(SettingsError) as caught:
        loaded(text)
    said = f"{caught.value.param} {caught.value.message}"
    assert "policy.yaml" in said and place in said
    assert advice.lower() in said.lower()


def test_without_settings_keys_are_not_known_and_not_refused() -> None:
    assert loaded(rule("{key: anyone}"), known=Vocabulary(KNOWN.kinds)).rules[0].match.keys == ("anyone",)
    assert loaded(rule("{key: app-*}")).rules[0].match.keys == ("app-*",)


def test_a_whole_rule_comes_out_as_it_was_written() -> None:
    [found] = loaded(
        rule(
            '{class: [personal], only_entities: [email], model: "small*", key: ops, route: auto, features: tools,'
            ' prompt_tokens: {at_least: 5, at_most: 9}, time: {days: sun, from: "22:00", until: "02:00"}}',
            "{action: mask, mask: [email], zones: [site, cloud], mode: prefer_cloud, output_cap_tokens: 7}",
        )
    ).rules
    match, act = found.match, found.act
    assert match.classes == {PrivacyClass.PERSONAL} and match.only_entities == {"email"}
    assert (match.models, match.keys, match.routes) == (("small*",), ("ops",), {Route.AUTO})
    assert (match.min_prompt_tokens, match.max_prompt_tokens, match.features) == (5, 9, {"tools"})
    assert match.week_minutes == ((0, 120), (7 * 1440 - 120, 7 * 1440))
    assert (act.action, act.mask_kinds, act.zones) == (Action.MASK, {"email"}, {Zone.SITE, Zone.CLOUD})
    assert (act.mode, act.output_cap_tokens) == (Mode.PREFER_CLOUD, 7)


@pytest.mark.parametrize("name", ["no", "off", "on", "y", "18:00", "007", "app [1]?"])
def test_names_that_yaml_likes_to_take_for_something_else(name: str) -> None:
    named = f'"{name}"' if "[" in name or name == "007" else name
    known = Vocabulary(KNOWN.kinds, frozenset({name}))
    assert loaded(rule(f"{{key: {named}}}"), known=known).rules[0].match.keys == (name,)


def test_the_files_defaults_win_over_the_settings_one_by_one() -> None:
    base = PolicyDefaults(mode=Mode.FASTEST, dwell_ms=7)
    assert loaded("defaults: {mode: only_edge}\n", base).mode is Mode.ONLY_EDGE
    assert loaded("defaults: {mode: only_edge}\n", base).dwell_ms == 7
    assert loaded("version: 1\n", base).mode is Mode.FASTEST


def test_patterns_and_words_of_a_file_are_kinds_and_part_of_its_digest() -> None:
    """Their digest alone is written down: a list of customers belongs into no log."""
    text = "patterns: [{kind: badge, pattern: 'EMP-[0-9]{4}'}]\nword_lists: [{kind: firm, words: [Orion]}]\n"
    policy = loaded(text + rule("{entities: [badge, firm]}"))
    assert policy.rules[0].match.any_entity == {"badge", "firm"}
    other = loaded(text.replace("Orion", "Vela") + rule("{entities: [badge, firm]}"))
    assert policy.digest != other.digest
    assert "Orion" not in repr(written_down(policy)) and "EMP" not in repr(written_down(policy))
    assert read_back(written_down(policy)) == policy
    assert [each.kind for each in looked_for(parse(text.encode(), PATH))] == ["badge", "firm"]


def test_a_policy_that_looks_for_nothing_keeps_the_digest_that_old_records_have() -> None:
    assert "looks_for" not in written_down(loaded("version: 1\n"))


@pytest.mark.parametrize("day", range(7))
def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins(day: int) -> None:
    window = TimeWindow.model_validate({"days": [DAYS[day]], "from": "23:00", "until": "01:00"})
    minutes = {m for start, end in window.intervals() for m in range(start, end)}
    begin = day * 1440 + 23 * 60
    assert minutes == {m % (7 * 1440) for m in range(begin, begin + 120)}


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such file"):
        read(tmp_path / "none")
    (tmp_path / "large").write_bytes(b"#" * 1_100_000)
    with pytest.raises(SettingsError, match="larger"):
        read(tmp_path / "large")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_a_pipe_or_a_folder_does_not_keep_a_reader_waiting(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "policy")
    with pytest.raises(SettingsError, match=r"not a regular file|is a directory"):
        read(tmp_path / "policy", only_files=True)


@settings(deadline=None, max_examples=80)
@given(policies())
def test_a_policy_can_be_written_down_and_read_back(policy: Policy) -> None:
    again = read_back(written_down(policy))
    assert written_down(again) == written_down(policy)
    assert again.rules == policy.rules and again.digest == digest_of(policy)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_policy_or_a_typed_refusal(raw: bytes) -> None:
    try:
        parse(raw, PATH)
    except SettingsError as error:
        assert error.message


@pytest.mark.parametrize(
    ("written", "home"),
    [
        ("actions: {personal: mask}", "defaults"),
        ("mode: prefer_edge", "defaults"),
        ("rules: [{name: x, match: {class: [secret], zones: [device]}, act: {}}]", "rules.act"),
    ],
)
def test_a_name_in_the_wrong_place_is_told_where_it_belongs(written: str, home: str) -> None:
    with pytest.raises(SettingsError, match=f"It belongs below {home}"):
        loaded(written)
