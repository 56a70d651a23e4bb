"""Rules for the names of topics. Source: org.apache.kafka.common.internals.Topic."""

import re
from typing import Any, Final

from headgate.connector.config import ConfigError

LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
_EXPECTED: Final = f"expected 1 to {LENGTH_MAX} of letters, digits, dots, dashes and _"


def topic_fault(name: str) -> str | None:
    """Return what is wrong with a topic's name, and what was expected; None if it is valid."""
    if name in (".", ".."):
        return f"{name!r} is no name of a topic: a folder is called so"
    if len(name) > LENGTH_MAX:
        return f"{name[:40]!r}... of {len(name)} characters is no name of a topic: {_EXPECTED}"
    if _LEGAL.fullmatch(name) is None:
        return f"{name!r} is no name of a topic: {_EXPECTED}"
    return None


def valid_topic(name: str, value: Any) -> None:
    """Check a setting that is a topic's name; a validator for `ConfigDef`. A missing value is not
    an error here, since it is reported as missing."""
    fault = None if value is None else topic_fault(value)
    if fault is not None:
        raise ConfigError.of(name, value, fault)
