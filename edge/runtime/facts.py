"""Says what an engine serves that was started with a plan."""

from __future__ import annotations

from edge.packages.parity import identity
from edge.runtime.options import WHOLE_INPUT, EngineOptions
from edge.runtime.plan import StaticPlan
from edge.runtime.port import EngineFacts


def facts_of(plan: StaticPlan) -> EngineFacts:
    """The facts, fixed for the life of that engine."""
    return EngineFacts(
        model_id=plan.package.name,
        digest=plan.package.digest,
        architecture=plan.geometry.architecture,
        slots=plan.options.slots,
        context_tokens=plan.options.context_tokens,
        vocabulary_tokens=plan.geometry.vocabulary_tokens,
        features=plan.features,
        speculation=plan.speculation,
        tokenizer=identity(plan.package.manifest.model.tokenizer).fingerprint,
        adapters=tuple(adapter.digest for adapter in plan.adapters),
        embedding_input_tokens=_embedding_input_tokens(plan),
        computes={name: value for name, value in plan.options.wire().items() if name != "model_alias"},
        package=plan.package,
    )


def _embedding_input_tokens(plan: StaticPlan) -> int | None:
    options = plan.options
    if not isinstance(options, EngineOptions) or options.pooling is None:
        return None
    room = options.context_tokens - 1  # the engine keeps a place for a token to come, which no vector has
    return min(room, options.ubatch_tokens) if options.pooling in WHOLE_INPUT else room
