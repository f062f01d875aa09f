"""What may stand in a policy file: defaults, ordered rules, and cases that say what the two should come to."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from router.policy.model import Mode, Reason, Route
from router.rulebook.defaults import Frozen, PolicyDefaults
from router.rulebook.looked_for import PatternSettings, WordList
from shared.fleet import Zone
from shared.openai.wire import MAX_OUTPUT_TOKENS
from shared.privacy import Action, PrivacyClass

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINUTES = 24 * 60
_WEEK_MINUTES = 7 * _DAY_MINUTES
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00")


def _listed(value: Any) -> Any:
    """One value may stand for a list of one."""
    return [value] if isinstance(value, str) else value


def _minutes(value: Any) -> Any:
    """`HH:MM` in minutes since midnight."""
    if isinstance(value, str) and _CLOCK.fullmatch(value):
        hours, minutes = value.split(":")
        return int(hours) * 60 + int(minutes)
    raise ValueError("a time of day is written as HH:MM, from 00:00 to 24:00")


RuleName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f]+$")]
Kind = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Minutes = Annotated[int, BeforeValidator(_minutes)]
Classes = Annotated[frozenset[PrivacyClass], BeforeValidator(_listed), Field(min_length=1)]
Kinds = Annotated[frozenset[Kind], BeforeValidator(_listed), Field(min_length=1)]
Patterns = Annotated[tuple[Pattern, ...], BeforeValidator(_listed), Field(min_length=1)]
Routes = Annotated[frozenset[Route], BeforeValidator(_listed), Field(min_length=1)]
Features = Annotated[frozenset[Kind], BeforeValidator(_listed), Field(min_length=1)]
Zones = Annotated[frozenset[Zone], BeforeValidator(_listed), Field(min_length=1)]
Days = Annotated[tuple[Day, ...], BeforeValidator(_listed), Field(min_length=1)]


class TimeWindow(Frozen):
    """Times of the week. A window that ends before it begins goes on until the next day."""

    days: Days = Field(default=DAYS, description="Days on which the window begins; unset: every day.")
    begins: Minutes = Field(default=0, alias="from", description="Begin, HH:MM.")
    ends: Minutes = Field(default=_DAY_MINUTES, alias="until", description="End, HH:MM, not included.")

    @model_validator(mode="after")
    def _is_not_empty(self) -> TimeWindow:
        if self.begins == self.ends:
            raise ValueError("the window begins and ends at the same time")
        return self

    def intervals(self) -> tuple[tuple[int, int], ...]:
        """The window in minutes of the week, each interval `[start, end)`."""
        length = self.ends - self.begins if self.ends > self.begins else self.ends + _DAY_MINUTES - self.begins
        found: list[tuple[int, int]] = []
        for day in self.days:
            start = DAYS.index(day) * _DAY_MINUTES + self.begins
            found.append((start, min(start + length, _WEEK_MINUTES)))
            if start + length > _WEEK_MINUTES:
                found.append((0, start + length - _WEEK_MINUTES))
        return tuple(sorted(found))


class PromptTokens(Frozen):
    """Bounds on the estimated prompt, both included."""

    at_least: int | None = Field(default=None, ge=1, description="Least size.")
    at_most: int | None = Field(default=None, ge=1, description="Greatest size.")

    @model_validator(mode="after")
    def _is_a_range(self) -> PromptTokens:
        if self.at_least is None and self.at_most is None:
            raise ValueError("at_least or at_most must be given")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError("at_least is greater than at_most")
        return self


class MatchDocument(Frozen):
    """Conditions; all that are given must hold."""

    classes: Classes | None = Field(default=None, alias="class", description="Privacy classes.")
    entities: Kinds | None = Field(default=None, description="Kinds of which one at least was found.")
    only_entities: Kinds | None = Field(
        default=None, description="Kinds beside which nothing was found; one at least was."
    )
    model: Patterns | None = Field(default=None, description="Models; * stands for any characters.")
    key: Patterns | None = Field(default=None, description="Names of API keys; * stands for any characters.")
    route: Routes | None = Field(default=None, description="What the caller asked for with x-isthmus-route.")
    prompt_tokens: PromptTokens | None = Field(default=None, description="Size of the prompt, as estimated.")
    features: Features | None = Field(default=None, description="Features that the request needs, all of them.")
    time: TimeWindow | None = Field(default=None, description="Times of the week, in the time zone of the file.")


class ActDocument(Frozen):
    """What is done; what is not given is left to the defaults."""

    action: Action | None = Field(default=None, description="What privacy lets happen.")
    mask: Kinds | None = Field(
        default=None, description="With action mask: kinds that may travel masked; unset: all that are found."
    )
    zones: Zones | None = Field(default=None, description="Zones that are left; privacy still comes first.")
    mode: Mode | None = Field(default=None, description="Which tier is preferred.")
    output_cap_tokens: int | None = Field(
        default=None, ge=1, le=MAX_OUTPUT_TOKENS, strict=True, description="Most tokens of an answer."
    )
    scan_answers: bool | None = Field(
        default=None, description="Whether findings in the answer are replaced; unset: as router.scan.answers says."
    )

    resume: bool | None = Field(
        default=None,
        description="Whether a chat stream that breaks after content goes on at another backend with the same model "
        "digest; unset: it ends.",
    )
    hedge_ms: int | None = Field(
        default=None,
        ge=1,
        le=600_000,
        description="Wait for the first token of a stream after which a second backend is asked too; unset: none is.",
    )

    @model_validator(mode="after")
    def _does_something(self) -> ActDocument:
        if not self.model_fields_set:
            raise ValueError("a rule must do something")
        if self.mask is not None and self.action is not Action.MASK:
            raise ValueError("mask names kinds for the action mask, and the action is another")
        return self


class RuleDocument(Frozen):
    """One rule."""

    name: RuleName = Field(description="Name for people; appears in the log and in explanations.")
    match: MatchDocument = Field(default_factory=MatchDocument, description="When the rule acts; empty: always.")
    act: ActDocument = Field(description="What it does.")


class CaseRequest(Frozen):
    """A request as it would be found to be. With `text`, the scanner finds class and kinds itself."""

    text: str | None = Field(default=None, max_length=100_000, description="What a user would write.")
    privacy_class: PrivacyClass | None = Field(default=None, alias="class", description="Class, without text: public.")
    entities: frozenset[Kind] = Field(default=frozenset(), description="Kinds found, without text.")
    model: Pattern = Field(default="model", description="Model asked for.")
    key: str | None = Field(default=None, description="Name of the API key.")
    route: Route = Field(default=Route.AUTO, description="The header x-isthmus-route.")
    prompt_tokens: int = Field(default=200, ge=1, description="Size of the prompt.")
    max_tokens: int | None = Field(default=None, ge=1, description="Answer length asked for.")
    features: frozenset[Kind] = Field(default=frozenset(), description="Features that the request needs.")
    day: Day = Field(default="mon", description="Day of the week.")
    time: Minutes = Field(default=_DAY_MINUTES // 2, description="Time of day, HH:MM; unset: noon.")

    @model_validator(mode="after")
    def _is_found_once(self) -> CaseRequest:
        if self.text is not None and (self.privacy_class is not None or self.entities):
            raise ValueError("the scanner finds class and entities of a text by itself: give one or the other")
        return self

    @property
    def week_minute(self) -> int:
        """The moment in minutes of the week."""
        return (DAYS.index(self.day) * _DAY_MINUTES + self.time) % _WEEK_MINUTES


class CaseFleet(Frozen):
    """Two backends that serve everything at once, and what is different about them."""

    edge: Literal["nominal", "warm", "hot", "critical", "unknown", "gone", "full", "slow"] = Field(
        default="nominal", description="Heat of the edge device, or gone, full or slow."
    )
    edge_zone: Literal[Zone.DEVICE, Zone.SITE] = Field(default=Zone.DEVICE, description="Where it stands.")
    cloud: Literal["ready", "gone", "cooling", "slow"] = Field(default="ready", description="State of the cloud.")


class CaseExpectation(Frozen):
    """What should come of it; what is not given is not looked at."""

    tier: Literal["edge", "cloud", "none"] | None = Field(default=None, description="Tier of the first choice.")
    never: Literal["edge", "cloud"] | None = Field(default=None, description="Tier that no candidate may be of.")
    rule: str | None = Field(default=None, description="Rule that acts; default: the defaults do.")
    action: Action | None = Field(default=None, description="Privacy action.")
    mode: Mode | None = Field(default=None, description="Mode in force.")
    reason: Reason | None = Field(default=None, description="Reason given.")
    output_cap_tokens: int | None = Field(default=None, description="Bound on the answer.")

    @model_validator(mode="after")
    def _expects_something(self) -> CaseExpectation:
        if not self.model_fields_set:
            raise ValueError("a case must expect something")
        return self


class CaseDocument(Frozen):
    """One case of a policy's own test."""

    name: str = Field(min_length=1, max_length=200, description="What the case shows.")
    request: CaseRequest = Field(default_factory=CaseRequest, description="The request.")
    fleet: CaseFleet = Field(default_factory=CaseFleet, description="The fleet at that moment.")
    expect: CaseExpectation = Field(description="What should come of it.")


class PolicyDocument(Frozen):
    """A whole policy file."""

    version: Literal[1] = Field(default=1, description="Version of this format.")
    time_zone: str = Field(default="UTC", max_length=64, description="Where the times of rules are read.")
    defaults: PolicyDefaults = Field(
        default_factory=PolicyDefaults,
        description="What holds without a rule; what is not given comes from the settings.",
    )
    rules: tuple[RuleDocument, ...] = Field(
        default=(), max_length=256, description="Rules; the first that matches acts."
    )
    patterns: tuple[PatternSettings, ...] = Field(
        default=(), max_length=256, description="Regular expressions of your own, beside those of the settings."
    )
    word_lists: tuple[WordList, ...] = Field(
        default=(), max_length=256, description="Words of your own, beside those of the settings."
    )
    cases: tuple[CaseDocument, ...] = Field(default=(), max_length=4_096, description="Cases for `policy test`.")

    @property
    def own_kinds(self) -> dict[str, PrivacyClass]:
        """Kinds that the file itself looks for, and their classes."""
        kinds: dict[str, PrivacyClass] = {each.kind: each.privacy_class for each in self.patterns}
        kinds.update((each.kind, each.privacy_class) for each in self.word_lists)
        return kinds
