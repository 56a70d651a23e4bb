"""Infers the types of CSV columns from rows.

A column gets a type only if each of its texts is exactly how the value of that type is written. So
no value changes its form: ``007``, ``1e5``, ``NaN``, ``+1``, ``-0`` and an empty text stay texts,
and so does a number with more digits than the type holds. Later texts must obey the same rule.
"""

import datetime
import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from headgate.connector.api import Partition
from headgate_connectors.formats.csv_types import Parse, column

INFER: Final = "infer"
"""Value of ``csv.types`` that asks for inference."""
PARTITION: Final[Partition] = {"csv.types": "inferred"}
"""Source partition whose source offset holds the types that a connector has inferred."""
TYPES: Final = "types"
"""Member of the source offset of `PARTITION`: the types by column, as JSON text."""
ANEW: Final = (
    "to have types inferred anew, stop the connector and forget these: headgate offsets set NAME "
    f"--partition '{json.dumps(PARTITION)}' --offset null"
)
_WHOLE: Final = r"(?:0|-?[1-9][0-9]*)"
_FRACTION: Final = re.compile(r"-?(?:0|[1-9][0-9]*)\.([0-9]+)", re.ASCII)
_DIGITS: Final = 38
_EXACT: Final[Mapping[str, str]] = {
    "boolean": r"\A(?:true|false)\z",
    "int64": rf"\A{_WHOLE}\z",
    "date": r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z",
}
"""Patterns, in Arrow's regex syntax, by type. A text that is a value of the type and matches is
exactly how that value is written."""


def inferred(
    names: Sequence[str], rows: Sequence[Sequence[str]], null: str | None
) -> dict[str, str]:
    """Return the inferred type of each column.

    Args:
        names: names of the columns.
        rows: rows with a text for each column.
        null: text that means null. None: no text does.
    """
    return {
        name: _kind([row[at] for row in rows if row[at] != null]) for at, name in enumerate(names)
    }


def types_of(offset: Mapping[str, Any]) -> dict[str, str]:
    """Return the types by column in a source offset of `PARTITION`.

    Raises:
        ValueError: it has none, or they are malformed.
    """
    try:
        found = json.loads(offset[TYPES])
        for kind in found.values():
            column(kind, None)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError):
        found = None
    if not found:
        raise ValueError(
            f"expected a type by column, as JSON, in {TYPES}, such as "
            f"{json.dumps({TYPES: json.dumps({'id': 'int64'})})}, not {json.dumps(dict(offset))}"
        )
    return dict(found)


def _kind(texts: Sequence[str]) -> str:
    """Return the first type that holds all texts. It is string if none does or there are no
    texts."""
    if not texts:
        return "string"
    kinds = ["boolean", "int64", "date", "timestamp", "float64"]
    fraction = _FRACTION.fullmatch(texts[0])
    if fraction is not None and len(fraction[1]) <= _DIGITS:
        kinds.append(f"decimal({_DIGITS},{len(fraction[1])})")
    return next((kind for kind in kinds if _all_hold(kind, texts)), "string")


def _all_hold(kind: str, texts: Sequence[str]) -> bool:
    parse = as_written(kind, column(kind, None)[1])
    try:
        for text in texts:
            parse(text)
    except ValueError:
        return False
    return True


def as_written(kind: str, parse: Parse) -> Parse:
    """Return the parser of an inferred type. It accepts a text only if it is exactly how its value
    is written."""
    if kind == "string":
        return parse
    write = _WRITERS.get(kind.partition("(")[0], str)

    def exact(text: str) -> Any:
        value = parse(text)
        if write(value) != text:
            raise ValueError(
                f"expected {kind}, as it was inferred, and that is written {write(value)}: declare "
                "the type of the column in csv.types"
            )
        return value

    return exact


def quick_pattern(kind: str) -> str | None:
    """Return a pattern, in Arrow's regex syntax, for an inferred type. A value of the type whose
    text matches is accepted by `as_written`, too. None: there is no pattern for the type."""
    if kind.startswith("decimal"):
        scale = int(kind.partition(",")[2].rstrip(")"))
        return rf"\A{_WHOLE}\.[0-9]{{{scale}}}\z"
    return _EXACT.get(kind)


def _float_text(value: float) -> str:
    """Return a float in plain digits. Empty text: it is written with an exponent or is not
    finite."""
    text = repr(value)
    return text if text.lstrip("-")[:1].isdigit() and "e" not in text else ""


def _instant_text(value: datetime.datetime) -> str:
    whole = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return whole.isoformat(timespec="milliseconds") + "Z"


_WRITERS: Final[Mapping[str, Callable[[Any], str]]] = {
    "boolean": lambda value: "true" if value else "false",
    "date": datetime.date.isoformat,
    "timestamp": _instant_text,
    "float64": _float_text,
    "decimal": lambda value: "" if _is_below_zero(value) else format(value, "f"),
}


def _is_below_zero(value: Decimal) -> bool:
    """Return whether a decimal is -0, which no decimal column keeps."""
    return value.is_zero() and value.is_signed()
