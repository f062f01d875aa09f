"""What `isthmus router policy` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import yaml
from rich.console import Console
from rich.text import Text

import router
from router.audit.proposal import Proposal
from router.console import or_dash, print_json, table_of
from router.inforce import vocabulary
from router.policy.model import Act, Match, Policy, Rule
from router.policy.written import written_down
from router.privacy.scanner import Scanner
from router.rulebook.cases import CaseResult, Scan, run_cases
from router.rulebook.document import DAYS, PolicyDocument
from router.rulebook.load import looked_for, parse, policy_of, read
from router.scanning import build_scanner
from router.settings import RouterSettings, ScanSettings
from shared.openai.text import TextPosition
from shared.privacy import PrivacyClass

_DAY_MINUTES = 24 * 60


def open_policy(file: Path | None, settings: RouterSettings, *, keys_known: bool) -> tuple[PolicyDocument, Policy]:
    """The document in `file` (None: an empty one) and the policy that it makes over the settings.

    Raises:
        SettingsError: it is not a valid policy.
    """
    known = vocabulary(settings, keys_known=keys_known)
    if file is None:
        document = PolicyDocument()
        return document, policy_of(document, settings.policy_base(), known)
    raw = read(file)
    document = parse(raw, file)
    return document, policy_of(document, settings.policy_base(), known, file, raw)


def examples() -> list[Path]:
    """The policy files that ship with the program."""
    return sorted((Path(router.__path__[0]) / "policies").glob("*.yaml"))


def show_check(file: Path, document: PolicyDocument, policy: Policy, *, as_json: bool) -> None:
    """That a file is valid, and what is in it."""
    if as_json:
        print_json(
            {"file": str(file), "digest": policy.digest, "rules": len(policy.rules), "cases": len(document.cases)}
        )
        return
    Console().print(
        f"{file}: valid, {len(policy.rules)} rules, {len(document.cases)} cases, {policy.digest}",
        markup=False,
        soft_wrap=True,
    )


def show_policy(document: PolicyDocument, policy: Policy, *, as_json: bool) -> None:
    """Defaults, what is looked for, then each rule: when it acts and what it does."""
    if as_json:
        print_json({"digest": policy.digest, **written_down(policy), "own_kinds": document.own_kinds})
        return
    console = Console()
    actions = ", ".join(f"{each} {action}" for each, action in policy.actions)
    console.print(f"[bold]policy[/] {policy.digest}", soft_wrap=True)
    console.print(f"[bold]mode[/] {policy.mode}  [bold]actions[/] {actions}")
    slo = f"first token {policy.slo.ttft_ms:.0f} ms, then {policy.slo.tpot_ms:.0f} ms a token"
    console.print(f"[bold]objective[/] {slo}  [bold]times in[/] {policy.time_zone}")
    if document.own_kinds:
        console.print(f"[bold]looks for[/] {', '.join(f'{kind} ({c})' for kind, c in document.own_kinds.items())}")
    for n, rule in enumerate(policy.rules, start=1):
        console.print(f"{n:>3}  [bold]{rule.name}[/]")
        console.print(f"     when  {'; '.join(_conditions(rule.match)) or 'always'}", markup=False, highlight=False)
        console.print(f"     then  {'; '.join(_acts(rule))}", markup=False, highlight=False)
    if not policy.rules:
        console.print("No rules: the defaults hold for every request.")


def show_cases(files: Iterable[tuple[Path, PolicyDocument, Policy]], scanner: ScanSettings, *, as_json: bool) -> int:
    """One row a case; 1 where one fails, or where there is none to try. `scanner` reads the texts of cases."""
    of_settings = cache(lambda: build_scanner(scanner))
    tried: list[tuple[Path, CaseResult]] = []
    for path, document, policy in files:
        scan = _scan_with(of_settings, document)
        tried += [(path, result) for result in run_cases(document.cases, policy, scan)]
    failed = [result for _, result in tried if result.faults]
    if as_json:
        rows = [
            {"file": str(path), "name": r.name, "tier": r.tier, "rule": r.rule, "reason": r.reason, "faults": r.faults}
            for path, r in tried
        ]
        print_json({"cases": rows, "failed": len(failed)})
        return 1 if failed or not tried else 0
    console = Console()
    table = table_of("policy", "tier", "rule", "verdict", "case")
    for path, result in tried:
        verdict = Text("failed", style="red") if result.faults else Text("ok", style="green")
        table.add_row(path.stem, result.tier, or_dash(result.rule), verdict, "\n  ".join((result.name, *result.faults)))
    console.print(table if tried else "There is no case in this file: add some under `cases`.", markup=True)
    if tried:
        console.print(f"{len(tried)} cases, {len(failed)} failed.")
    return 1 if failed or not tried else 0


def show_proposals(proposed: list[Proposal], *, as_json: bool) -> None:
    """Rules in the form of a policy file, each under the reason for it."""
    if as_json:
        rules = [{"corrections": each.count, "looser": each.is_looser, "rule": each.rule()} for each in proposed]
        print_json({"proposals": rules})
        return
    if not proposed:
        Console().print("No rule is spoken for by enough corrections.")
        return
    lines = ["# Proposed from corrections; nothing is applied. Take over into `rules:` what is right."]
    for each in proposed:
        found = ", ".join(each.kinds) or "nothing"
        lines.append(f"# {each.count} requests of class {each.found} ({found} found) should have been {each.said}.")
        if each.is_looser:
            lines.append("# This lets out more than now: look at some of them before you take it over.")
        if not each.kinds:
            lines.append("# No kind marks them: this holds for all requests of the key. Words that do may be better:")
            lines.append(f"# word_lists: [{{kind: own_words, words: [], privacy_class: {each.said}}}]")
        lines.append(yaml.safe_dump([each.rule()], sort_keys=False, default_flow_style=None).rstrip())
    print("\n".join(lines))  # noqa: T201 - this is the output, to be copied


def _conditions(match: Match) -> Iterable[str]:
    for name, values in (
        ("class", match.classes),
        ("holds", match.any_entity),
        ("holds only", match.only_entities),
        ("model", match.models),
        ("key", match.keys),
        ("route", match.routes),
        ("needs", match.features),
    ):
        if values is not None:
            yield f"{name} {', '.join(sorted(values))}"
    if match.min_prompt_tokens is not None:
        yield f"prompt from {match.min_prompt_tokens} tokens"
    if match.max_prompt_tokens is not None:
        yield f"prompt up to {match.max_prompt_tokens} tokens"
    if match.week_minutes is not None:
        yield ", ".join(_windows(match.week_minutes))


def _acts(rule: Rule) -> Iterable[str]:
    act: Act = rule.act
    if act.action is not None:
        yield f"action {act.action}"
    if act.scan_answers is not None:
        yield "answers scanned" if act.scan_answers else "answers not scanned"
    if act.resume:
        yield "broken streams go on elsewhere"
    if act.hedge_ms is not None:
        yield f"a second backend after {act.hedge_ms} ms"
    if act.mask_kinds is not None:
        yield f"of {', '.join(sorted(act.mask_kinds))}"
    if act.zones is not None:
        yield f"zones {', '.join(sorted(act.zones))}"
    if act.mode is not None:
        yield f"mode {act.mode}"
    if act.output_cap_tokens is not None:
        yield f"at most {act.output_cap_tokens} tokens"


def _windows(intervals: tuple[tuple[int, int], ...]) -> Iterable[str]:
    """Times of the week, days of equal hours together."""
    whole = dict(intervals)
    if len(whole) > 1 and 0 in whole and max(whole.values()) == 7 * _DAY_MINUTES:  # one that goes on over Sunday night
        last = max(whole)
        whole[last] += whole.pop(0)
    hours: dict[tuple[int, int], list[str]] = {}
    for start, end in whole.items():
        hours.setdefault((start % _DAY_MINUTES, end - start), []).append(DAYS[start // _DAY_MINUTES])
    for (start, length), days in hours.items():
        named = "every day" if len(days) == len(DAYS) else ", ".join(days)
        yield f"{named} {_clock(start)} to {_clock((start + length) % _DAY_MINUTES or _DAY_MINUTES)}"


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _scan_with(of_settings: Callable[[], Scanner], document: PolicyDocument) -> Scan:
    """What reads the texts of cases, and looks for what the file names; compiled when the first case gives one."""
    scanner = cache(lambda: of_settings().with_more(looked_for(document)))

    def scan(text: str) -> tuple[PrivacyClass, frozenset[str]]:
        found = scanner().scan([TextPosition("messages[0].content", text)])
        return found.privacy_class, found.kinds

    return scan
