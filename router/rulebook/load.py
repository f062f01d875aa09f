"""Reads a policy file whole, or refuses it with the line at fault and the nearest name that would have been right."""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import yaml
from pydantic import ValidationError

from router.policy.model import Act, Cost, Match, Policy, Rule, Slo
from router.policy.rules import build_policy
from router.privacy.recognisers.model import Recogniser
from router.rulebook.defaults import PolicyDefaults
from router.rulebook.document import PolicyDocument, RuleDocument
from router.rulebook.finders import recognisers_of
from router.rulebook.looked_for import digest_of
from router.rulebook.names import homes_of, names_at
from router.rulebook.places import line_of, mark_of, place_of
from shared.errors import SettingsError
from shared.openai.facts import FEATURES
from shared.strict_yaml import StrictLoader

LIMIT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Names that a rule may use. `keys` is None where they are not known, as without a router's settings."""

    kinds: frozenset[str]
    keys: frozenset[str] | None = None
    features: frozenset[str] = frozenset(FEATURES)


class _Loader(StrictLoader):
    """YAML in which 18:00, off and no are texts."""


_INT, _BOOL = "tag:yaml.org,2002:int", "tag:yaml.org,2002:bool"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, shape) for tag, shape in shapes if tag not in (_INT, _BOOL)]
    for first, shapes in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INT, re.compile(r"[-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(_BOOL, re.compile(r"(true|false)$"), list("tf"))


def read(path: Path, *, only_files: bool = False) -> bytes:
    """The bytes of a policy file. `only_files` refuses pipes and devices, which would make a reader wait for ever.

    Raises:
        SettingsError: it cannot be read, or is larger than any policy.
    """
    try:
        # Without the flag, opening a pipe waits for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_NONBLOCK if only_files else 0))
        with os.fdopen(handle, "rb") as file:
            if only_files and not stat.S_ISREG(os.fstat(handle).st_mode):
                raise SettingsError(f"The policy file {path} is not a regular file.", param="router.policy.file")
            raw = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise SettingsError(f"The policy file {path}: {reason}.", param="router.policy.file") from None
    if len(raw) > LIMIT_BYTES:
        raise SettingsError(f"The policy file {path} is larger than {LIMIT_BYTES} bytes.", param="router.policy.file")
    return raw


def parse(raw: bytes, path: Path) -> PolicyDocument:
    """The document in `raw`; `path` stands in messages.

    Raises:
        SettingsError: it is no YAML, or not a policy; `param` names the place.
    """
    try:
        loader = _Loader(raw.decode())
        root = loader.get_single_node()
        value = None if root is None else loader.construct_document(root)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}, line {line}: not UTF-8.", param="router.policy.file") from None
    except yaml.reader.ReaderError as error:
        line = raw.decode().count("\n", 0, error.position) + 1
        raise SettingsError(f"{path}, line {line}: {error.reason}.", param="router.policy.file") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "cannot be read as YAML"
        raise SettingsError(f"{place_of(path, mark)}: {problem}.", param="router.policy.file") from None
    if root is None:  # as of a file that is being written, which must not undo every rule
        empty = f"The policy file {path}, line 1: it is empty; a policy without rules says `version: 1`."
        raise SettingsError(empty, param="router.policy.file")
    if not isinstance(value, dict):
        at = place_of(path, root.start_mark)
        raise SettingsError(f"The policy file {at}: it must be a mapping.", param="router.policy.file")
    try:
        document = PolicyDocument.model_validate(value)
    except ValidationError as error:
        raise _translated(error, path, root) from None
    _refuse_equal_names(document, path, root)
    return document


def policy_of(
    document: PolicyDocument,
    base: PolicyDefaults,
    known: Vocabulary,
    path: Path | None = None,
    raw: bytes | None = None,
) -> Policy:
    """As `read_whole`, the policy alone."""
    return read_whole(document, base, known, path, raw)[0]


def read_whole(
    document: PolicyDocument,
    base: PolicyDefaults,
    known: Vocabulary,
    path: Path | None = None,
    raw: bytes | None = None,
) -> tuple[Policy, tuple[Recogniser, ...]]:
    """The policy that `document` says over `base`, the defaults of the settings, and the recognisers of what it looks
    for. `path` and `raw`, where the document was read from, stand in messages.

    Raises:
        SettingsError: a name is not known, a rule lets out more than it says, or a pattern or list of words cannot be
            used; `param` names the place.
    """
    try:
        _refuse_unknown_names(document, replace(known, kinds=known.kinds | document.own_kinds.keys()))
        own = looked_for(document)
        return _built(document, base), own
    except SettingsError as error:
        if path is None:
            raise
        line = None if raw is None else line_of(_Loader(raw.decode()).get_single_node(), error.param or "")
        place = f"{path}" if line is None else f"{path}, line {line}"
        raise SettingsError(f"{place}: {error.message}", param=error.param) from None


def looked_for(document: PolicyDocument) -> tuple[Recogniser, ...]:
    """Recognisers of the patterns and words in `document`.

    Raises:
        SettingsError: one of them cannot be used; `read_whole` says where it stands.
    """
    return tuple(recognisers_of(document.patterns, document.word_lists))


def _built(document: PolicyDocument, base: PolicyDefaults) -> Policy:
    chosen = document.defaults.model_fields_set
    defaults = base.model_copy(update={name: getattr(document.defaults, name) for name in chosen})
    return build_policy(
        mode=defaults.mode,
        actions=defaults.actions,
        slo=Slo(defaults.slo.ttft_ms, defaults.slo.tpot_ms),
        stale_after_ms=defaults.stale_after_ms,
        default_output_tokens=defaults.default_output_tokens,
        hysteresis_ratio=defaults.hysteresis_ratio,
        dwell_ms=defaults.dwell_ms,
        cost=Cost(**defaults.cost.model_dump()),
        rules=[_rule(each) for each in document.rules],
        time_zone=document.time_zone,
        stream_wait_ms=_ms(defaults.stream_wait_limit_s),
        whole_wait_ms=_ms(defaults.whole_wait_limit_s),
        shared_line_ratio=defaults.shared_line_ratio,
        looks_for=digest_of(document.patterns, document.word_lists),
    )


def _ms(limit_s: float | None) -> float | None:
    return None if limit_s is None else limit_s * 1000


def _rule(document: RuleDocument) -> Rule:
    match, act = document.match, document.act
    tokens = match.prompt_tokens
    return Rule(
        name=document.name,
        match=Match(
            classes=match.classes,
            any_entity=match.entities,
            only_entities=match.only_entities,
            models=match.model,
            keys=match.key,
            routes=match.route,
            features=match.features,
            min_prompt_tokens=tokens.at_least if tokens else None,
            max_prompt_tokens=tokens.at_most if tokens else None,
            week_minutes=match.time.intervals() if match.time else None,
        ),
        act=Act(
            action=act.action,
            zones=act.zones,
            mode=act.mode,
            output_cap_tokens=act.output_cap_tokens,
            mask_kinds=act.mask,
            scan_answers=act.scan_answers,
            resume=act.resume,
            hedge_ms=act.hedge_ms,
        ),
    )


def _refuse_equal_names(document: PolicyDocument, path: Path, root: yaml.Node) -> None:
    """Refuse the second of two rules of one name, in its own line: by the name alone, the first would be found."""
    first: dict[str, int] = {}
    for at, rule in enumerate(document.rules):
        if first.setdefault(rule.name, at) != at:
            other = mark_of(root, ("rules", first[rule.name], "name")).line + 1
            raise SettingsError(
                f"{place_of(path, mark_of(root, ('rules', at, 'name')))}: rules.{at}.name: another rule is named "
                f"{rule.name}, in line {other}: the log could not tell them apart.",
                param=f"rules.{at}.name",
            )


def _refuse_unknown_names(document: PolicyDocument, known: Vocabulary) -> None:
    _refuse_unknown_zone(document.time_zone)
    for rule in document.rules:
        match, at = rule.match, f"rules.{rule.name}"
        _refuse_unknown(f"{at}.match.entities", match.entities, known.kinds)
        _refuse_unknown(f"{at}.match.only_entities", match.only_entities, known.kinds)
        _refuse_unknown(f"{at}.act.mask", rule.act.mask, known.kinds)
        _refuse_unknown(f"{at}.match.features", match.features, known.features)
        if known.keys is not None:
            _refuse_unknown(f"{at}.match.key", _without_wildcards(match.key), known.keys)
    names = frozenset(rule.name for rule in document.rules)
    for n, case in enumerate(document.cases, start=1):
        _refuse_unknown(f"cases.{n}.request.entities", case.request.entities, known.kinds)
        _refuse_unknown(f"cases.{n}.request.features", case.request.features, known.features)
        if case.expect.rule is not None:
            _refuse_unknown(f"cases.{n}.expect.rule", (case.expect.rule,), names)


def _without_wildcards(patterns: Iterable[str] | None) -> list[str]:
    return [each for each in patterns or () if "*" not in each]


def _refuse_unknown(param: str, names: Iterable[str] | None, allowed: frozenset[str]) -> None:
    for name in sorted(names or ()):
        if name not in allowed:
            raise SettingsError(f"{param}: there is no {name}.{_hint(name, allowed)}", param=param)


def _refuse_unknown_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        message = f"time_zone: there is no {name}.{_hint(name, available_timezones())}"
        raise SettingsError(message, param="time_zone") from None


def _hint(name: str, allowed: Iterable[str]) -> str:
    known = sorted(allowed)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f" Did you mean {near[0]}?"
    return f" Known: {', '.join(known)}." if 0 < len(known) <= 20 else ""


def _translated(error: ValidationError, path: Path, root: yaml.Node | None) -> SettingsError:
    """The first fault, with its line, and the nearest valid name where a name is at fault."""
    first = error.errors(include_url=False)[0]
    place = [part for part in first["loc"] if part != "[key]"]
    name = ".".join(str(part) for part in place)
    if first["type"] == "value_error":
        message = str(first["ctx"]["error"])
    elif first["type"] == "extra_forbidden":
        message = "there is no such name here"
    else:
        message = first["msg"][:1].lower() + first["msg"][1:]
    hint = ""
    if first["type"] in ("extra_forbidden", "enum", "literal_error"):
        unknown = first["type"] == "extra_forbidden"
        given = str(place[-1] if unknown else first["input"])
        home = next(homes_of(PolicyDocument, given), None) if unknown else None
        hint = f" It belongs below {home}." if home else _hint(given, names_at(PolicyDocument, first))
    return SettingsError(f"{place_of(path, mark_of(root, place))}: {name}: {message}.{hint}", param=name)
