"""Plugins that are part of Headgate itself: transforms, predicates and converters, by class
name."""

from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from headgate.connector.config import ConfigDef
from headgate.connector.converters import (
    CONVERTERS,
    HEADER_CONVERTERS,
    SimpleHeaderConverter,
    config_def_of,
)
from headgate.connector.transforms import PREDICATES, TRANSFORMS

PARTS: Final[tuple[tuple[str, Collection[str]], ...]] = (
    ("transformation", TRANSFORMS),
    ("predicate", PREDICATES),
    ("converter", CONVERTERS),
    ("header_converter", HEADER_CONVERTERS),
)
"""Kind, as in the REST API, and the names of its classes: full ones, and Connect's shorter ones."""
_CHAIN: Final[Mapping[str, Any]] = {**TRANSFORMS, **PREDICATES}


def part_definition(plugin: str) -> ConfigDef | None:
    """Return the options of a transform, predicate or converter. None: `plugin` is none of
    these."""
    if plugin in _CHAIN:
        return cast(ConfigDef, _CHAIN[plugin].CONFIG)
    if plugin in CONVERTERS or plugin in HEADER_CONVERTERS:
        return config_def_of(plugin)
    return None


def part_class(plugin: str) -> type:
    """Return the class of a transform, predicate or converter."""
    found = _CHAIN.get(plugin) or CONVERTERS.get(plugin)
    if found is None:
        assert plugin in HEADER_CONVERTERS
        return SimpleHeaderConverter
    return cast(type, found)
