"""Parsers from the text of a setting to its value. Each raises ValueError with the reason."""

import difflib
import re
from collections.abc import Callable, Collection

from headgate.connector.validators import no_such_class

EXACTLY_ONCE = ("disabled", "preparing", "enabled")
RUNNERS = ("spark", "process", "thread")
POLICIES = ("kip415", "connect")
CONNECT_PROTOCOLS = ("eager", "compatible", "sessioned")
OVERRIDE_POLICIES = ("All", "None", "Principal", "Allowlist")
BROKER_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MACS = ("HmacSHA1", "HmacSHA224", "HmacSHA256", "HmacSHA384", "HmacSHA512")
"""Java's MAC algorithms that exist here."""
SHORT_MAX = 2**15 - 1
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
"""The largest of Java's whole numbers. Brokers and other workers take no larger one."""
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,1000}")
"""Whole numbers as Java reads them. Python would take underscores, too, and reads some thousands of
digits at most."""


def text(value: str) -> str:
    return value


def name(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def number(low: int, high: int = INT_MAX) -> Callable[[str], int]:
    """Return a parser of whole numbers from `low` to `high`.

    Args:
        high: the maximum of the type that Connect's key has.
    """

    def check(value: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(value.strip()):
            raise ValueError(f"{value!r} is not a whole number")
        number = int(value)
        if number > high:
            raise ValueError(f"{number} is above the greatest value, {high}")
        if number < low:
            raise ValueError(f"{number} is below the least value, {low}")
        return number

    return check


def number_or_none(low: int) -> Callable[[str], int | None]:
    def check(value: str) -> int | None:
        return number(low)(value) if value.strip() else None

    return check


def count(high: int = INT_MAX) -> Callable[[str], int]:
    """Return a parser of positive numbers, and of -1 for the broker's default."""
    at_least = number(-1, high)

    def check(value: str) -> int:
        number = at_least(value)
        if number == 0:
            raise ValueError("0, expected a positive number, or -1 for the broker's default")
        return number

    return check


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser of one of `choices`. Case is ignored, as Connect does for enumerations."""
    by_lower = {choice.lower(): choice for choice in choices}

    def check(value: str) -> str:
        found = by_lower.get(value.strip().lower())
        if found is None:
            near = difflib.get_close_matches(value.strip().lower(), by_lower, n=1, cutoff=0.6)
            hint = f"; did you mean {by_lower[near[0]]}?" if near else ""
            raise ValueError(f"{value!r} is none of {', '.join(choices)}{hint}")
        return found

    return check


def boolean(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return value.strip().lower() == "true"


def texts(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def names(value: str) -> tuple[str, ...]:
    found = texts(value)
    if not found:
        raise ValueError("must not be empty")
    return found


def brokers(value: str) -> tuple[str, ...]:
    """Return the addresses of brokers. They are refused as by Java's clients; librdkafka would take
    a missing port for 9092.

    Differs: Java ignores whatever precedes ``://``, and would speak Kafka's protocol to a web
    server.

    Raises:
        ValueError: an address is wrong. The message says which, and why.
    """
    found = names(value)
    for address in found:
        protocol, separator, rest = address.rpartition("://")
        if separator and protocol.upper() not in BROKER_PROTOCOLS:
            raise ValueError(
                f"{address!r} begins with none of Kafka's protocols, {', '.join(BROKER_PROTOCOLS)};"
                " host:port will do, such as localhost:9092"
            )
        host, _, port = rest.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"{address!r} is no host:port, such as localhost:9092")
    return found


def class_of(known: Collection[str]) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value.strip() not in known:
            raise ValueError(no_such_class(value, known))
        return value

    return check


def macs(value: str) -> tuple[str, ...]:
    return tuple(one_of(*MACS)(name) for name in names(value))


def protocol(value: str) -> str:
    """Return a group protocol. KIP-415 calls ``cooperative`` what is now called ``sessioned``."""
    if value.strip().lower() == "cooperative":
        return "sessioned"
    return one_of(*CONNECT_PROTOCOLS)(value)


def override_policy(value: str) -> str:
    """Return an override policy, given its short name or the name of Connect's class."""
    short = value.strip().rpartition(".")[2]
    return one_of(*OVERRIDE_POLICIES)(
        short.removesuffix("ConnectorClientConfigOverridePolicy") or value
    )
