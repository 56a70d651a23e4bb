"""Validators for `ConfigDef`, with Kafka's names, rules and texts.

Source: the inner classes of Kafka's `ConfigDef`, and Connect's `RegexValidator` (4.3.1).
"""

import re
from collections.abc import Collection
from typing import Any, Final

from headgate.connector.config import ConfigError, Validator, java_text
from headgate.connector.nearest import nearest
from headgate.java.pattern import PATTERN_MAX, JavaPatternError, compile_java


def between(low: float | None, high: float | None) -> Validator:
    """A number within these bounds, both included; None is no bound. Source: Range."""

    def check(name: str, value: Any) -> None:
        if value is None:
            raise ConfigError.of(name, None, "Value must be non-null")
        if low is not None and value < low:
            raise ConfigError.of(name, value, f"Value must be at least {java_text(low)}")
        if high is not None and value > high:
            raise ConfigError.of(name, value, f"Value must be no more than {java_text(high)}")

    return check


def at_least(low: float) -> Validator:
    return between(low, None)


def one_of(*choices: str) -> Validator:
    """Source: ValidString."""

    def check(name: str, value: Any) -> None:
        if value not in choices:
            raise ConfigError.of(name, value, f"String must be one of: {', '.join(choices)}")

    return check


def one_of_any_case(*choices: str) -> Validator:
    """Choices are listed in the order given. Source: CaseInsensitiveValidString (which lists them
    in hash order)."""
    upper = tuple(choice.upper() for choice in choices)

    def check(name: str, value: Any) -> None:
        if value is None or value.upper() not in upper:
            raise ConfigError.of(
                name, value, f"String must be one of (case insensitive): {', '.join(upper)}"
            )

    return check


def non_null(name: str, value: Any) -> None:
    """Source: NonNullValidator."""
    if value is None:
        raise ConfigError.of(name, "null", "entry must be non null")


def non_empty(name: str, value: Any) -> None:
    """Source: NonEmptyString."""
    if value == "":
        raise ConfigError.of(name, value, "String must be non-empty")


def non_empty_without_control_chars(name: str, value: Any) -> None:
    """Source: NonEmptyStringWithoutControlChars."""
    if value is None:
        return  # missing: said once, as a missing key
    if value == "":
        raise ConfigError.of(name, value, "String may not be empty")
    found = [ord(char) for char in value if is_iso_control(char)]
    if found:
        codes = ", ".join(map(str, found))
        raise ConfigError.of(
            name,
            value,
            f"String may not contain control sequences but had the following ASCII chars: {codes}",
        )


def connector_name(name: str, value: Any) -> None:
    """As `non_empty_without_control_chars`; Java takes "." and "..", too, which clients leave out
    of URLs, so that such a connector cannot be asked for."""
    non_empty_without_control_chars(name, value)
    if value in (".", ".."):
        raise ConfigError.of(name, value, 'a connector cannot be named "." or ".."')


def is_iso_control(char: str) -> bool:
    """`Character.isISOControl`."""
    return char <= "\x1f" or "\x7f" <= char <= "\x9f"


def unique_values(name: str, value: Any) -> None:
    """A list without doubles and without empty items. Source: ValidList.anyNonDuplicateValues."""
    if value is None:
        raise ConfigError(f"Configuration '{name}' values must not be null.")
    if len(set(value)) != len(value):
        raise ConfigError(f"Configuration '{name}' values must not be duplicated.")
    if "" in value:
        raise ConfigError(f"Configuration '{name}' values must not be empty.")


def unique_names(name: str, value: Any) -> None:
    """As `unique_values`, with one at least. Source: ValidList.anyNonDuplicateValues(false, …)."""
    if value == []:
        raise ConfigError(
            f"Configuration '{name}' must not be empty. Valid values include: any non-empty value"
        )
    unique_values(name, value)


def non_empty_list(name: str, value: Any) -> None:
    """Source: NonEmptyListValidator of Connect's transforms."""
    if not value:
        raise ConfigError.of(name, value, "Empty list")


ALIASES_MAX: Final = 1_000
"""Most transforms, predicates or groups of topics in one config. Java has no limit."""


def unique_aliases(name: str, value: Any) -> None:
    """Source: ConnectorConfig.aliasValidator."""
    non_null(name, value)
    if len(value) > ALIASES_MAX:
        raise ConfigError(
            f"Configuration '{name}' has {len(value)} aliases; expected at most {ALIASES_MAX}."
        )
    if len(set(value)) != len(value):
        raise ConfigError.of(name, value, "Duplicate alias provided.")


def regex(name: str, value: Any) -> None:
    """Differs: the expression is Python's, and not longer than `PATTERN_MAX`. Source:
    RegexValidator."""
    if value and len(value) > PATTERN_MAX:
        text = f"it has {len(value)} characters; expected at most {PATTERN_MAX} of them"
        raise ConfigError(f"Invalid value for configuration {name}: Invalid regex: {text}")
    try:
        re.compile(value or "")
    except re.error as error:
        raise ConfigError.of(name, value, f"Invalid regex: {error}") from error


def java_regex(name: str, value: Any) -> None:
    """An expression that means here what it means to Java. Source: RegexValidator; differs: what
    `headgate.java.pattern` does not understand is refused, though Java does."""
    try:
        compile_java(value or "")
    except JavaPatternError as error:
        raise ConfigError.of(name, value, f"Invalid regex: {error}") from error


def optional(validator: Validator) -> Validator:
    """`validator`, but None is valid too."""

    def check(name: str, value: Any) -> None:
        if value is not None:
            validator(name, value)

    return check


def all_of(*validators: Validator) -> Validator:
    """Source: CompositeValidator."""

    def check(name: str, value: Any) -> None:
        for validator in validators:
            validator(name, value)

    return check


def known_class(known: Collection[str]) -> Validator:
    """The name of a class among `known`; None is valid."""

    def check(name: str, value: Any) -> None:
        if value is not None and value not in known:
            raise ConfigError.of(name, value, no_such_class(value, known))

    return check


def no_such_class(name: object, known: Collection[str]) -> str:
    """The text of a class which Java cannot load, and the one that is meant. If none is near, those
    that there are, by their full names: nobody can add one of these."""
    said = f"Class {name} could not be found."
    if near := nearest(str(name), known):
        return f"{said} Did you mean {near}?"
    full = sorted(each for each in known if "." in each)
    return f"{said} There are {', '.join(full)}."
