"""Floating-point numbers as Java writes them."""

import math


def java_double(value: float) -> str:
    """Return `value` as `Double.toString` writes it in Java 19 and later: the shortest text that
    reads back, in scientific form from 10^7 up and below 10^-3."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:f}"
    sign, digits, exponent = _decimal(value)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _decimal(value: float) -> tuple[str, str, int]:
    """Return the sign, the significant digits, and the exponent of the first digit."""
    mantissa, _, exponent_text = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    exponent = int(exponent_text or "0") + len(whole) - 1
    digits = whole + ("" if fraction == "0" else fraction)
    stripped = digits.lstrip("0")
    exponent -= len(digits) - len(stripped)
    if len(stripped.rstrip("0")) == 1:
        # Java writes at least two digits, the nearest two: 4.9E-324, where one digit would do.
        mantissa, _, exponent_text = f"{abs(value):.1e}".partition("e")
        stripped, exponent = mantissa.replace(".", ""), int(exponent_text)
    return ("-" if value < 0 else "", stripped.rstrip("0"), exponent)
