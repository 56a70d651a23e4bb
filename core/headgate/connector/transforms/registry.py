"""Transforms and predicates by their names: Connect's full class names, and short ones."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from headgate.connector.config import ConfigError, Validator
from headgate.connector.transforms.base import RecordTransform, sides
from headgate.connector.transforms.cast import Cast
from headgate.connector.transforms.fields import ExtractField, HoistField, ValueToKey
from headgate.connector.transforms.flatten import Flatten
from headgate.connector.transforms.headers import (
    DropHeaders,
    HeaderFromKey,
    HeaderFromValue,
    InsertHeader,
)
from headgate.connector.transforms.insert_field import InsertField
from headgate.connector.transforms.mask_field import MaskField
from headgate.connector.transforms.predicates import (
    HasHeaderKey,
    Predicate,
    RecordIsTombstone,
    TopicNameMatches,
)
from headgate.connector.transforms.replace_field import ReplaceField
from headgate.connector.transforms.routers import Filter, RegexRouter, TimestampRouter
from headgate.connector.transforms.schema_metadata import SetSchemaMetadata
from headgate.connector.transforms.timestamp_converter import TimestampConverter
from headgate.connector.validators import no_such_class

_PACKAGE: Final = "org.apache.kafka.connect.transforms."
_SIDED: Final = (
    Cast,
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    SetSchemaMetadata,
    TimestampConverter,
)
_BOTH: Final = frozenset({"HeaderFrom", *(found.__name__ for found in _SIDED)})
"""Transforms that have one class for keys and one for values."""


def _transforms() -> Mapping[str, type[RecordTransform]]:
    simple: dict[str, type[RecordTransform]] = {
        "HeaderFrom$Key": HeaderFromKey,
        "HeaderFrom$Value": HeaderFromValue,
    }
    for found in (DropHeaders, Filter, InsertHeader, RegexRouter, TimestampRouter, ValueToKey):
        simple[found.__name__] = found
    for sided in _SIDED:
        simple.update(sides(sided))
    return {**{_PACKAGE + name: found for name, found in simple.items()}, **simple}


TRANSFORMS: Final = _transforms()

PREDICATES: Final[Mapping[str, Callable[[], Predicate]]] = {
    name: found
    for found in (TopicNameMatches, HasHeaderKey, RecordIsTombstone)
    for name in (f"{_PACKAGE}predicates.{found.__name__}", found.__name__)
}


def unknown_class(key: str, name: str, known: Collection[str]) -> ConfigError:
    """Return the error for a class that is not in `known`. Source: Utils.ensureConcrete,
    ConfigDef."""
    simple = name.removeprefix(_PACKAGE)
    if simple in _BOTH and f"{name}$Key" in known:
        return ConfigError(
            f"This class is abstract and cannot be created. Did you mean {name}$Key, {name}$Value?"
        )
    return ConfigError.of(key, name, no_such_class(name, known))


def known_transform(known: Collection[str]) -> Validator:
    """Return a validator like `known_class`, for the classes of a chain."""

    def check(name: str, value: Any) -> None:
        if value is not None and value not in known:
            raise unknown_class(name, value, known)

    return check
