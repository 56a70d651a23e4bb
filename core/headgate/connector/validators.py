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
    """Return a validator for a number within these bounds, both included; None is no bound. Source:
    Range."""

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
    """Return a validator for one of `choices`. Source: ValidString."""

    def check(name: str, value: Any) -> None:
        if value not in choices:
            raise ConfigError.of(name, value, f"String must be one of: {', '.join(choices)}")

    return check


def one_of_any_case(*choices: str) -> Validator:
    """Return a validator for one of `choices` in any case. Errors list them in the order given.
    Source: CaseInsensitiveValidString (which lists them in hash order)."""
    upper = tuple(choice.upper() for choice in choices)

    def check(name: str, value: Any) -> None:
        if value is None or value.upper() not in upper:
            raise ConfigError.of(
                name, value, f"String must be one of (case insensitive): {', '.join(upper)}"
            )

    return check


def non_null(name: str, value: Any) -> None:
    """Check that the value is not None. Source: NonNullValidator."""
    if value is None:
        raise ConfigError.of(name, "null", "entry must be non null")


def non_empty(name: str, value: Any) -> None:
    """Check that the text is not empty. Source: NonEmptyString."""
    if value == "":
        raise ConfigError.of(name, value, "String must be non-empty")


def non_empty_without_control_chars(name: str, value: Any) -> None:
    """Check that the text is not empty and has no control characters. Source:
    NonEmptyStringWithoutControlChars."""
    if value is None:
        return  # reported once, as a missing key
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
    """Check a connector's name, as `non_empty_without_control_chars` does.

    Differs: "." and ".." are refused. Java accepts them, but clients drop them from URLs, so that
    such a connector cannot be requested.
    """
    non_empty_without_control_chars(name, value)
    if value in (".", ".."):
        raise ConfigError.of(name, value, 'a connector cannot be named "." or ".."')


def is_iso_control(char: str) -> bool:
    """Return what Java's `Character.isISOControl` returns."""
    return char <= "\x1f" or "\x7f" <= char <= "\x9f"


def unique_values(name: str, value: Any) -> None:
    """Check that a list has no duplicates and no empty items. Source:
    ValidList.anyNonDuplicateValues."""
    if value is None:
        raise ConfigError(f"Configuration '{name}' values must not be null.")
    if len(set(value)) != len(value):
        raise ConfigError(f"Configuration '{name}' values must not be duplicated.")
    if "" in value:
        raise ConfigError(f"Configuration '{name}' values must not be empty.")


def unique_names(name: str, value: Any) -> None:
    """Check as `unique_values` does, and that there is at least one item. Source:
    ValidList.anyNonDuplicateValues(false, …)."""
    if value == []:
        raise ConfigError(
            f"Configuration '{name}' must not be empty. Valid values include: any non-empty value"
        )
    unique_values(name, value)


def non_empty_list(name: str, value: Any) -> None:
    """Check that the list is not empty. Source: NonEmptyListValidator of Connect's transforms."""
    if not value:
        raise ConfigError.of(name, value, "Empty list")


ALIASES_MAX: Final = 1_000
"""Largest number of transforms, predicates or topic groups in one config. Java has no limit."""


def unique_aliases(name: str, value: Any) -> None:
    """Check a list of aliases. Source: ConnectorConfig.aliasValidator."""
    non_null(name, value)
    if len(value) > ALIASES_MAX:
        raise ConfigError(
            f"Configuration '{name}' has {len(value)} aliases; expected at most {ALIASES_MAX}."
        )
    if len(set(value)) != len(value):
        raise ConfigError.of(name, value, "Duplicate alias provided.")


def regex(name: str, value: Any) -> None:
    """Check a regular expression. Source: RegexValidator. Differs: the syntax is Python's, and the
    text may have at most `PATTERN_MAX` characters."""
    if value and len(value) > PATTERN_MAX:
        text = f"it has {len(value)} characters; expected at most {PATTERN_MAX} of them"
        raise ConfigError(f"Invalid value for configuration {name}: Invalid regex: {text}")
    try:
        re.compile(value or "")
    except re.error as error:
        raise ConfigError.of(name, value, f"Invalid regex: {error}") from error


def java_regex(name: str, value: Any) -> None:
    """Check a regular expression in Java's syntax. Source: RegexValidator. Differs: expressions
    that `headgate.java.pattern` does not understand are refused, although Java accepts them."""
    try:
        compile_java(value or "")
    except JavaPatternError as error:
        raise ConfigError.of(name, value, f"Invalid regex: {error}") from error


def optional(validator: Validator) -> Validator:
    """Return `validator`, extended to accept None."""

    def check(name: str, value: Any) -> None:
        if value is not None:
            validator(name, value)

    return check


def all_of(*validators: Validator) -> Validator:
    """Return a validator that applies all `validators`. Source: CompositeValidator."""

    def check(name: str, value: Any) -> None:
        for validator in validators:
            validator(name, value)

    return check


def known_class(known: Collection[str]) -> Validator:
    """Return a validator for a class name among `known`; None is valid."""

    def check(name: str, value: Any) -> None:
        if value is not None and value not in known:
            raise ConfigError.of(name, value, no_such_class(value, known))

    return check


def no_such_class(name: object, known: Collection[str]) -> str:
    """Return the error text for a class that cannot be found, with the name that was probably
    meant. If no known name is near, list all by their full names, since users cannot add one of
    these."""
    said = f"Class {name} could not be found."
    if near := nearest(str(name), known):
        return f"{said} Did you mean {near}?"
    full = sorted(each for each in known if "." in each)
    return f"{said} There are {', '.join(full)}."
