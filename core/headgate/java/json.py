"""JSON as Java's `JsonConverter` (schemas.enable=false) reads and writes it, to the byte.

Every reader of a log must agree on what can be parsed, or offsets and states differ between
workers. The behaviour of Kafka Connect 4.3.1 (Jackson 2.21) was recorded case by case in
``specs/java-json/reading.jsonl``, and tests hold `parse` to it.

Java differs from Python's `json` in these points. Bytes after the first value are ignored. An empty
value and ``null`` are both None (a tombstone). NaN and Infinity are refused. Numbers may have
leading zeros. Integers wrap to 64 bits. UTF-16 and UTF-32 are recognised. UTF-8 is decoded without
a check for overlong forms or surrogates. Depth and length are limited.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final, TypeAlias

from headgate.java.json_reader import (
    DEPTH_MAX,
    NAME_LENGTH_MAX,
    NUMBER_LENGTH_MAX,
    NotJsonError,
    java_long,
    read,
)

__all__ = [
    "NAME_LENGTH_MAX",
    "NotJsonError",
    "Parse",
    "as_java",
    "dumps",
    "java_int",
    "java_long",
    "parse",
    "trusted",
]

Parse: TypeAlias = Callable[[bytes], Any]
"""A faster parser. It raises ValueError for what it refuses; what it accepts must be JSON as RFC
8259 defines it. It may read numbers in its own way; see `trusted`."""

_OPENERS_MAX: Final = DEPTH_MAX // 4
_LONG_NUMBER: Final = re.compile(rb"[-+.0-9eE]{%d}" % (NUMBER_LENGTH_MAX + 1))
_LONG_EXPONENT: Final = re.compile(rb"[eE][-+]?[0-9]{10}")
_TWO_DIGITS: Final = re.compile(rb"[0-9]{2}")
"""Two digits among every fifth byte. Any run of ten digits shows this way, and few documents need a
closer look."""
_NUMERIC: Final = frozenset(b"-+.0123456789eE")


def parse(data: bytes) -> Any:
    """Return the value that Java reads: dict, list, str, int (within 64 bits), float, bool or None.

    Raises:
        NotJsonError: Java refuses the bytes too. The text says at which byte and why.

    Cost: that of `json` for ordinary documents. Unusual ones are read again by a reader of our own.
    """
    if not plain(data) or b"\\ud" in data or b"\\uD" in data:
        # Python accepts halves of surrogate pairs where Jackson does not.
        return read(data)
    try:
        value, _ = _DECODER.raw_decode(data.decode())
    except (ValueError, RecursionError):
        return read(data)
    return value


def plain(data: bytes) -> bool:
    """Return whether `data` is an object or array without whitespace before it, within Java's
    limits on length and depth.

    If so, a parser that keeps to RFC 8259 and accepts `data` reads what Java reads, except for
    numbers.
    """
    if data[:1] not in (b"{", b"["):
        return False
    # A document of a thousand bytes is not nested too deep, and its names are not too long.
    return len(data) <= DEPTH_MAX or (
        len(data) <= NAME_LENGTH_MAX and data.count(b"{") + data.count(b"[") <= _OPENERS_MAX
    )


def trusted(data: bytes) -> bool:
    """Return whether another parser may read `data`: it is `plain`, and no number is too long.

    This matters even for numbers that nobody uses: Java refuses the whole document.
    """
    return (
        plain(data)
        and (_TWO_DIGITS.search(data[4::5]) is None or _LONG_EXPONENT.search(data) is None)
        and (len(data) <= NUMBER_LENGTH_MAX or not _has_long_number(data))
    )


def _has_long_number(data: bytes) -> bool:
    # A run of 1001 bytes covers one of every 1000th byte: a few looks clear most documents.
    sampled = data[NUMBER_LENGTH_MAX - 1 :: NUMBER_LENGTH_MAX]
    return any(byte in _NUMERIC for byte in sampled) and _LONG_NUMBER.search(data) is not None


def java_int(value: int) -> int:
    """Return `value` after Java's ``(int)`` cast: the low 32 bits, signed."""
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def _integer(text: str) -> int:
    if len(text) > 18:
        if len(text.lstrip("-")) > NUMBER_LENGTH_MAX:
            raise NotJsonError(f"a number of more than {NUMBER_LENGTH_MAX} digits")
        return java_long(int(text))
    return int(text)


def _float(text: str) -> float:
    # The text is too short for an exponent of more than 32 bits. Java has no negative zero here.
    value = float(text) if len(text) < 12 else 0.0
    if value == 0.0:
        raise NotJsonError("a number for the exact reader")
    return value


def _constant(text: str) -> Any:
    raise NotJsonError(f"{text} is no JSON number")


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)

_UNLIKE_JAVA: Final = re.compile(
    '\\\\(?:["\\\\]|u00[01][0-9a-f])|[\ud800-\udfff\U00010000-\U0010ffff]'
)
"""Text that Python writes differently from Jackson. Escaped quotes and backslashes are matched so
that the others are counted right."""


def dumps(value: object, other: Callable[[object], object] | None = None) -> bytes:
    """Return `value` as Java writes it: no whitespace, order as given, in UTF-8. Control characters
    and characters outside the Basic Multilingual Plane become escapes with capital letters. Floats
    have Python's form, which is the same from 0.001 up to 10^7 (see `java_double`).

    Args:
        other: Returns a value to be written for one that JSON does not know; it may raise
            TypeError.

    Raises:
        ValueError: A float is not finite.
    """
    return as_java(
        encode_basestring(value) if type(value) is str else _encoder(other).encode(value)
    )


def as_java(text: str) -> bytes:
    """Return JSON text that Python wrote, with Java's escapes, in UTF-8."""
    if "\\u00" in text or not text.isascii():
        text = _UNLIKE_JAVA.sub(_as_jackson, text)
    return text.encode()


@lru_cache(maxsize=8)
def _encoder(other: Callable[[object], object] | None) -> json.JSONEncoder:
    # `json.dumps` makes an encoder for each call, which costs more than the encoding.
    return json.JSONEncoder(
        separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=other
    )


def _as_jackson(match: re.Match[str]) -> str:
    found: str = match.group()
    if found[0] != "\\":
        units = found.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
    return found if found[1] != "u" else "\\u" + found[2:].upper()
