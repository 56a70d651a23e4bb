"""Definitions of config keys, parsing of their values, and validation.

Error texts are Kafka's, word for word, since tools match on them. Source: Kafka's `ConfigDef`,
`ConfigException` and `ConfigValue` (4.3.1).

Differs: a CLASS stays the name of the class: the core loads no class, and a validator decides which
names are known. A key with two parents in `dependents` is checked once, not once per parent.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias, cast

from headgate.errors import CoreError
from headgate.java.double import java_double


class ConfigError(CoreError):
    """A config value is invalid. Source: ConfigException."""

    @classmethod
    def of(cls, name: str, value: object, message: str = "") -> "ConfigError":
        tail = f": {message}" if message else ""
        return cls(f"Invalid value {java_text(value)} for configuration {name}{tail}")


class Type(StrEnum):
    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


class Importance(StrEnum):
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(StrEnum):
    """Width of the field in a form."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


@dataclass(frozen=True, slots=True)
class Password:
    """A text that is never shown."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return HIDDEN


HIDDEN: Final = "[hidden]"


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = _NoDefault()
"""Marks a key that must be set. (None is a default like any other.)"""

Validator: TypeAlias = Callable[[str, Any], None]
"""Function that takes a key and its parsed value, and raises `ConfigError`. See
`headgate.connector.validators`."""


class Recommender(Protocol):
    """Recommends values for a key, and whether to show it, given the parsed values of the other
    keys."""

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Sequence[Any]: ...

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool: ...


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key of a `ConfigDef`."""

    name: str
    type: Type
    default: Any
    validator: Validator | None
    importance: Importance
    documentation: str
    group: str
    order: int
    width: Width
    display_name: str
    dependents: tuple[str, ...]
    recommender: Recommender | None

    @property
    def required(self) -> bool:
        return self.default is NO_DEFAULT


@dataclass(slots=True)
class ConfigValue:
    """Result of validating one key. `value` is the parsed value, None if it cannot be parsed."""

    name: str
    value: Any = None
    recommended_values: list[Any] = field(default_factory=list[Any])
    errors: list[str] = field(default_factory=list[str])
    visible: bool = True


@dataclass(frozen=True, slots=True)
class ConfigKeyInfo:
    """A key as the REST API describes it."""

    name: str
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str
    group: str | None
    order_in_group: int
    width: str
    display_name: str
    dependents: tuple[str, ...]

    @classmethod
    def of(cls, key: ConfigKey, prefix: str = "") -> "ConfigKeyInfo":
        return cls(
            prefix + key.name,
            key.type.value,
            key.required,
            None if key.required else value_text(key.default, key.type),
            key.importance.value,
            key.documentation,
            key.group or None,
            key.order,
            key.width.value,
            key.display_name,
            key.dependents,
        )

    def plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "required": self.required,
            "default_value": self.default_value,
            "importance": self.importance,
            "documentation": self.documentation,
            "group": self.group,
            "order_in_group": self.order_in_group,
            "width": self.width,
            "display_name": self.display_name,
            "dependents": list(self.dependents),
        }


@dataclass(frozen=True, slots=True)
class ConfigInfo:
    """A key with its definition and validation result. `key` is None if no definition has the
    key."""

    key: ConfigKeyInfo | None
    type: Type | None
    value: ConfigValue

    def plain(self) -> dict[str, Any]:
        value = self.value
        return {
            "definition": None if self.key is None else self.key.plain(),
            "value": {
                "name": value.name,
                "value": value_text(value.value, self.type),
                "recommended_values": [
                    value_text(offered, self.type) for offered in value.recommended_values
                ],
                "errors": list(value.errors),
                "visible": value.visible,
            },
        }


@dataclass(frozen=True, slots=True)
class ConfigInfos:
    """Result of validating a config. Source: ConfigInfos of Connect's REST API."""

    name: str
    """Class name as the config gives it."""
    error_count: int
    groups: tuple[str, ...]
    configs: tuple[ConfigInfo, ...]

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(text for config in self.configs for text in config.value.errors)

    def plain(self) -> dict[str, Any]:
        """Return the body of the answer to PUT /connector-plugins/{p}/config/validate."""
        return {
            "name": self.name,
            "error_count": self.error_count,
            "groups": list(self.groups),
            "configs": [config.plain() for config in self.configs],
        }


class ConfigDef:
    """A set of key definitions. `define` returns the set itself, so that calls can be chained."""

    def __init__(self, base: "ConfigDef | None" = None) -> None:
        self._keys: dict[str, ConfigKey] = dict(base.keys) if base else {}
        self._groups: dict[str, None] = dict.fromkeys(base.groups) if base else {}

    @property
    def keys(self) -> Mapping[str, ConfigKey]:
        return self._keys

    @property
    def groups(self) -> Sequence[str]:
        """Groups in the order of their first key."""
        return list(self._groups)

    def define(
        self,
        name: str,
        type: Type = Type.STRING,
        default: Any = NO_DEFAULT,
        validator: Validator | None = None,
        importance: Importance = Importance.MEDIUM,
        documentation: str = "",
        *,
        group: str = "",
        order: int = -1,
        width: Width = Width.NONE,
        display_name: str | None = None,
        dependents: Iterable[str] = (),
        recommender: Recommender | None = None,
    ) -> "ConfigDef":
        """Add a key. A default that is text is parsed as a user's value would be.

        Raises:
            ConfigError: The key is defined already, or its default is not valid.
        """
        if name in self._keys:
            raise ConfigError(f"Configuration {name} is defined twice.")
        if default is not NO_DEFAULT:
            default = parse_type(name, default, type)
            if validator is not None:
                validator(name, default)
        shown = name if display_name is None else display_name
        return self.add(
            ConfigKey(
                name, type, default, validator, importance, documentation, group, order, width,
                shown, tuple(dependents), recommender,
            )
        )  # fmt: skip

    def add(self, key: ConfigKey) -> "ConfigDef":
        if key.name in self._keys:
            raise ConfigError(f"Configuration {key.name} is defined twice.")
        if key.group:
            self._groups.setdefault(key.group)
        self._keys[key.name] = key
        return self

    def parse(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all keys, with defaults filled in. Keys that are not defined are
        left out.

        Raises:
            ConfigError: The first error found.
        """
        parsed: dict[str, Any] = {}
        for key in self._keys.values():
            value = _parsed(key, config)
            if key.validator is not None:
                key.validator(key.name, value)
            parsed[key.name] = value
        return parsed

    def validate(self, config: Mapping[str, Any]) -> dict[str, ConfigValue]:
        """Return the results of validating all keys, in the order of definition.

        The validator gets None for a value that cannot be parsed, as in Java; this may add a second
        error for the key.
        """
        results = {name: ConfigValue(name) for name in self._keys}
        for key in self._keys.values():
            for dependent in key.dependents:
                if dependent not in self._keys:
                    text = f"{dependent} is referred in the dependents, but not defined."
                    results[dependent] = ConfigValue(dependent, errors=[text], visible=False)
        for key in self._keys.values():
            _check(key, config, results[key.name])
        parsed = {name: results[name].value for name in self._keys}
        for key in self._keys.values():
            _recommend(key, parsed, results[key.name])
        return results


def _parsed(key: ConfigKey, config: Mapping[str, Any]) -> Any:
    if key.name in config:
        return parse_type(key.name, config[key.name], key.type)
    if key.required:
        raise ConfigError(
            f'Missing required configuration "{key.name}" which has no default value.'
        )
    return key.default


def _check(key: ConfigKey, config: Mapping[str, Any], result: ConfigValue) -> None:
    try:
        result.value = _parsed(key, config)
    except ConfigError as error:
        result.errors.append(str(error))
    if key.validator is not None:
        try:
            key.validator(key.name, result.value)
        except ConfigError as error:
            result.errors.append(str(error))


def _recommend(key: ConfigKey, parsed: Mapping[str, Any], result: ConfigValue) -> None:
    if key.recommender is None:
        return
    try:
        result.recommended_values = list(key.recommender.valid_values(key.name, parsed))
        result.visible = key.recommender.visible(key.name, parsed)
    except ConfigError as error:
        result.errors.append(str(error))


# -- text to value and back --

_RANGES: Final = {Type.INT: 31, Type.SHORT: 15, Type.LONG: 63}
_INTEGER = re.compile(r"[+-]?\d+")
_DIGITS_MAX: Final = 20
"""More digits than any 64-bit integer has."""
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?)"
)
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_JAVA_SPACE: Final = "".join(map(chr, range(0x21)))  # characters that Java's trim() removes


def parse_type(name: str, value: Any, type: Type) -> Any:
    """Return `value`, which usually is text, parsed as `type`. None stays None.

    Raises:
        ConfigError: With Java's text.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _parse_text(name, value, value.strip(_JAVA_SPACE), type)
    return _parse_object(name, value, type)


def _parse_text(name: str, value: str, trimmed: str, type: Type) -> Any:
    match type:
        case Type.STRING | Type.CLASS:
            return trimmed
        case Type.PASSWORD:
            return Password(trimmed)
        case Type.BOOLEAN:
            lowered = trimmed.lower()
            if lowered not in ("true", "false"):
                raise ConfigError.of(name, value, "Expected value to be either true or false")
            return lowered == "true"
        case Type.LIST:
            return _COMMA.split(trimmed) if trimmed else []
        case Type.DOUBLE:
            if not _DOUBLE.fullmatch(trimmed):
                raise ConfigError.of(name, value, "Not a number of type DOUBLE")
            return _double(trimmed)
        case Type.INT | Type.SHORT | Type.LONG:
            bits = _RANGES[type]
            # Python refuses to parse thousands of digits.
            short = len(trimmed.lstrip("+-0")) < _DIGITS_MAX
            if short and _INTEGER.fullmatch(trimmed):
                number = int(trimmed.lstrip("+-0") or "0") * (-1 if trimmed[0] == "-" else 1)
                if -(1 << bits) <= number < 1 << bits:
                    return number
            raise ConfigError.of(name, value, f"Not a number of type {type.value}")


def _double(text: str) -> float:
    if "x" in text or "X" in text:
        return float.fromhex(text.rstrip("fFdD") if "p" in text.lower() else text)
    if text.endswith(("y", "N")):  # Infinity, NaN
        return float(text)
    return float(text.rstrip("fFdD"))


_WANTED: Final[dict[Type, tuple[tuple[type, ...], str]]] = {
    Type.BOOLEAN: ((bool,), "Expected value to be either true or false"),
    Type.STRING: ((), "Expected value to be a string, but it was a {}"),
    Type.CLASS: ((), "Expected a Class instance or class name."),
    Type.PASSWORD: ((Password,), "Expected value to be a string, but it was a {}"),
    Type.INT: ((int,), "Expected value to be a 32-bit integer, but it was a {}"),
    Type.SHORT: ((int,), "Expected value to be a 16-bit integer (short), but it was a {}"),
    Type.LONG: ((int,), "Expected value to be a 64-bit integer (long), but it was a {}"),
    Type.DOUBLE: ((int, float), "Expected value to be a double, but it was a {}"),
    Type.LIST: ((list, tuple), "Expected a comma separated list."),
}


def _parse_object(name: str, value: object, type: Type) -> Any:
    """Parse a value that is not text: a default, or a test's value."""
    wanted, message = _WANTED[type]
    if not isinstance(value, wanted) or (isinstance(value, bool) and type is not Type.BOOLEAN):
        # Differs: Java names Java's class here.
        raise ConfigError.of(name, value, message.format(value.__class__.__name__))
    if type in _RANGES:
        bits = _RANGES[type]
        if not -(1 << bits) <= cast(int, value) < 1 << bits:
            raise ConfigError.of(name, value, f"Not a number of type {type.value}")
    if type is Type.DOUBLE:
        return float(cast(float, value))
    return list(cast("Sequence[Any]", value)) if type is Type.LIST else value


def value_text(value: Any, type: Type | None) -> str | None:
    """Return a parsed value as the REST API shows it: lists joined by commas, passwords hidden."""
    if value is None:
        return None
    if type is Type.LIST and not isinstance(value, str):
        return ",".join(java_text(item) for item in value)
    return java_text(value)


def java_text(value: object) -> str:
    """Return the text that Java's string concatenation makes of `value`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[object]", value)
        return "[" + ", ".join(java_text(item) for item in items) + "]"
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        return "{" + ", ".join(f"{java_text(k)}={java_text(v)}" for k, v in pairs.items()) + "}"
    return str(value)
