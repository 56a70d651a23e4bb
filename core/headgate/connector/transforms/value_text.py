"""Parsing of a config text into the value that it stands for: `12` is a number, `true` a boolean.

Source: Connect's `Values.parseString` (4.3.1). Differs: a text is a number only if the number is
written as the same text, so that nothing is lost: `007` and `1.10` stay text. Dates and times stay
text too. A list or an object is read as JSON and has no schema.
"""

import json
import math
import re
from typing import Any, Final

from headgate.connector.config import java_text
from headgate.connector.schema import (
    BOOLEAN,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    SchemaAndValue,
)
from headgate.java.numbers import java_float, single, wrapped

_WORDS: Final = {
    "true": SchemaAndValue(BOOLEAN, True),
    "false": SchemaAndValue(BOOLEAN, False),
    "null": SchemaAndValue(None, None),
}
_INTEGER: Final = re.compile(r"-?\d+", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d[\d.]*(?:E-?\d+)?", re.ASCII)


def parse_value(text: str) -> SchemaAndValue:
    """Return the value of `text` with its schema."""
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith(("[", "{")):
        return _container(text)
    if _INTEGER.fullmatch(text):
        return _whole(text)
    if _NUMBER.fullmatch(text):
        return _fraction(text)
    return _text(text)


def _whole(text: str) -> SchemaAndValue:
    if len(text) <= 20 and text == str(int(text)):
        number = int(text)
        for schema, bits in ((INT8, 8), (INT16, 16), (INT32, 32), (INT64, 64)):
            if number == wrapped(number, bits):
                return SchemaAndValue(schema, number)
    return _text(text)


def _fraction(text: str) -> SchemaAndValue:
    try:
        number = float(text)
    except ValueError:
        return _text(text)
    if math.isinf(number) or number.is_integer():  # Java: an integer in another form
        return _text(text)
    if java_float(single(number)) == text:
        return SchemaAndValue(FLOAT32, single(number))
    return SchemaAndValue(FLOAT64, number) if java_text(number) == text else _text(text)


def _text(text: str) -> SchemaAndValue:
    return SchemaAndValue(STRING, text)


def _container(text: str) -> SchemaAndValue:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return _text(text)
    return SchemaAndValue(None, value)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
