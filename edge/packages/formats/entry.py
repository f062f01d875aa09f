"""What an entry of the formats' table is made of."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edge.packages.formats.files import Files
from edge.packages.manifest import ModelFacts

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Runtime:
    """What runs a format. `module` would load it here; `serves` says whether this agent has an engine for it."""

    name: str
    module: str
    serves: bool
    remedy: str
    systems: tuple[str, ...] = ("linux", "darwin", "win32")

    @property
    def is_here(self) -> bool:
        """Whether it is installed on this machine. It is looked for, not loaded."""
        return sys.platform in self.systems and importlib.util.find_spec(self.module) is not None


@dataclass(frozen=True, slots=True)
class Inspection:
    """What the files of a package say. `model` is None where they do not state all that a plan needs."""

    details: Mapping[str, Scalar | tuple[Scalar, ...]]
    model: ModelFacts | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of package.

    `recognise` looks at names and first bytes alone and never raises for strange content; `inspect` verifies the whole
    structure, raises a TrustError for the first fault, and returns what the files say. `entry` is what an engine is
    given: one file, or the folder as a whole.
    """

    name: str
    title: str
    entry: str
    runtime: Runtime
    recognise: Callable[[Files], bool]
    inspect: Callable[[Files], Inspection]
