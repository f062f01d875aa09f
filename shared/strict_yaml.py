"""YAML in which a name stands once: of two blocks with one name, the first would be lost without a word."""

from __future__ import annotations

from typing import Any

import yaml


class StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses repeated names, and says of every text that it cannot read that it is no YAML."""

    def get_single_data(self) -> Any:
        try:
            return super().get_single_data()
        except (ValueError, LookupError, AttributeError, RecursionError):
            # What its constructors raise for a month 13 or a tag that the value contradicts; blocks without end.
            raise yaml.constructor.ConstructorError(None, None, "a value cannot be read") from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the name {key.value[:64]} stands twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def strict_yaml(text: str) -> Any:
    """The one document in `text`; None where there is none. Raises yaml.YAMLError."""
    loader = StrictLoader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
