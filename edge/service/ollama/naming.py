"""Model names: Ollama's have a tag, `latest` unless said otherwise, which stands for the model itself here."""

from __future__ import annotations

_DEFAULT_TAG = ":latest"


def model_of(name: str) -> str:
    """The name under which a model, or `base:adapter`, is served."""
    return name.removesuffix(_DEFAULT_TAG)


def shown(name: str) -> str:
    """A served name as Ollama's clients list it: front ends add the tag to names without one."""
    return name if ":" in name else name + _DEFAULT_TAG
