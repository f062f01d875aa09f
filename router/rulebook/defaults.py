"""What holds for every request that no rule says otherwise about: a section of the settings, and of a policy file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from router.policy.model import Mode
from shared.privacy import Action, PrivacyClass


class Frozen(BaseModel):
    """Base of everything that is written down by an operator: an unknown name is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _default_actions() -> dict[PrivacyClass, Action]:
    return {
        PrivacyClass.PUBLIC: Action.ANY,
        PrivacyClass.PERSONAL: Action.EDGE_ONLY,
        PrivacyClass.SECRET: Action.EDGE_ONLY,
        PrivacyClass.UNKNOWN: Action.EDGE_ONLY,
    }


class SloSettings(Frozen):
    """What counts as fast enough."""

    ttft_ms: float = Field(2_000, gt=0, description="Time to first token.")
    tpot_ms: float = Field(150, gt=0, description="Time per output token after the first.")


class CostSettings(Frozen):
    """What a token costs. Prices are shown with every decision; the two rates say how much they weigh in it."""

    cloud_money_per_1k_tokens: float | None = Field(
        default=None, ge=0, description="Price of a thousand tokens in the cloud, read or written; unset: not counted."
    )
    edge_joules_per_token: float | None = Field(
        default=None, ge=0, description="Energy of one token on an edge device; unset: not counted."
    )
    ms_per_money: float = Field(0, ge=0, description="Milliseconds of waiting that one unit of money is worth.")
    ms_per_joule: float = Field(0, ge=0, description="Milliseconds of waiting that one joule is worth.")


class PolicyDefaults(Frozen):
    """What holds for every request that no rule says otherwise about."""

    mode: Mode = Field(Mode.PREFER_EDGE, description="Which tier is preferred once privacy has had its say.")
    actions: dict[PrivacyClass, Action] = Field(
        default_factory=_default_actions, description="What happens with each privacy class."
    )
    slo: SloSettings = Field(default_factory=SloSettings, description="What counts as fast enough.")
    cost: CostSettings = Field(default_factory=CostSettings, description="What a token costs, and how much it weighs.")
    stale_after_ms: int = Field(
        3_000, ge=100, description="Silence after which an edge agent is not used: three heartbeats."
    )
    default_output_tokens: int = Field(256, ge=1, description="Answer length assumed when the caller sets none.")
    hysteresis_ratio: float = Field(0.2, ge=0, lt=1, description="Margin by which a tier must be better to switch.")
    stream_wait_limit_s: float | None = Field(
        default=None,
        gt=0,
        description="Longest that a stream may be expected to stand in an edge agent's line until its first token, by "
        "the rates that the agent reports; beyond it the agent is not asked. Unset: timeouts.first_token_s.",
    )
    whole_wait_limit_s: float | None = Field(
        default=None,
        gt=0,
        description="The same for answers that are not streamed. Unset: timeouts.answer_s.",
    )
    shared_line_ratio: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of those limits up to which the line of an edge agent that misses the objective takes "
        "requests that a cloud could serve as well; the rest is kept for those that it could not. 1: nothing is kept.",
    )
    dwell_ms: int = Field(5_000, ge=0, description="How long a tier stays in use before a return is considered.")
