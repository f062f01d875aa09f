"""Finds models that backends serve under one name although they turn text into tokens differently."""

from __future__ import annotations

from dataclasses import dataclass

from shared.fleet import FleetSnapshot


@dataclass(frozen=True, slots=True)
class TokenizerMismatch:
    """One name; each group holds the backends that tokenize alike."""

    model_id: str
    groups: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class DigestMismatch:
    """One name under which different models are served; each group holds the backends that serve the same."""

    model_id: str
    groups: tuple[tuple[str, ...], ...]


def digest_mismatches(fleet: FleetSnapshot) -> tuple[DigestMismatch, ...]:
    """Names under which known digests differ, sorted. A backend that states none is in no group."""
    by_model: dict[str, dict[str, list[str]]] = {}
    for backend in fleet.backends:
        for model in backend.models:
            if model.digest is not None:
                by_model.setdefault(model.model_id, {}).setdefault(model.digest, []).append(backend.backend_id)
    return tuple(
        DigestMismatch(model_id, tuple(sorted(tuple(sorted(group)) for group in alike.values())))
        for model_id, alike in sorted(by_model.items())
        if len(alike) > 1
    )


def tokenizer_mismatches(fleet: FleetSnapshot) -> tuple[TokenizerMismatch, ...]:
    """Names under which known fingerprints differ, sorted. A backend that states none is in no group."""
    by_model: dict[str, dict[str, list[str]]] = {}
    for backend in fleet.backends:
        for model in backend.models:
            if model.tokenizer is not None:
                by_model.setdefault(model.model_id, {}).setdefault(model.tokenizer, []).append(backend.backend_id)
    return tuple(
        TokenizerMismatch(model_id, tuple(sorted(tuple(sorted(group)) for group in alike.values())))
        for model_id, alike in sorted(by_model.items())
        if len(alike) > 1
    )
