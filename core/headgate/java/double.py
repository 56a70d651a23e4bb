"""Floating-point numbers as Java writes them."""

import math
import struct
from typing import Final


def java_double(value: float) -> str:
    """`value` as `Double.toString` writes it (of Java 19 and later: the shortest that reads back,
    scientific from 10^7 up and below 10^-3)."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:f}"
    sign, digits, exponent = _decimal(value)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def java_float(value: float) -> str:
    """The 32-bit float nearest to `value` as `Float.toString` writes it.

    Raises:
        OverflowError: it is too large for one.
    """
    if not math.isfinite(value) or value == 0:
        return java_double(value)
    single: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    if single == 0:
        return java_double(single)
    shortest = next(text for n in range(9) if _is(text := f"{single:.{n}e}", single))
    if 1e-3 <= abs(single) < 1e7:
        return java_double(float(shortest))
    if len(shortest.partition("e")[0].lstrip("-")) == 1:
        shortest = f"{single:.1e}"  # two digits at least, as for a double
    mantissa, _, exponent = shortest.partition("e")
    return f"{mantissa}E{int(exponent)}"


_SINGLE: Final = struct.Struct(">f")


def _is(text: str, single: float) -> bool:
    try:
        return bool(_SINGLE.unpack(_SINGLE.pack(float(text)))[0] == single)
    except OverflowError:
        return False


def _decimal(value: float) -> tuple[str, str, int]:
    """Sign, significant digits, and the exponent of the first of them."""
    mantissa, _, exponent_text = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    exponent = int(exponent_text or "0") + len(whole) - 1
    digits = whole + ("" if fraction == "0" else fraction)
    stripped = digits.lstrip("0")
    exponent -= len(digits) - len(stripped)
    if len(stripped.rstrip("0")) == 1:
        # Java gives two digits at least, the nearest two: 4.9E-324, where one would do.
        mantissa, _, exponent_text = f"{abs(value):.1e}".partition("e")
        stripped, exponent = mantissa.replace(".", ""), int(exponent_text)
    return ("-" if value < 0 else "", stripped.rstrip("0"), exponent)
