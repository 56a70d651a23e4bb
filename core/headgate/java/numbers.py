"""Numbers as Java converts them: text to numbers, and numbers to narrower ones.

Source: Java's `Number`, `Byte.parseByte` and its siblings, `Double.parseDouble`, `BigDecimal`, and
the narrowing conversions of the language (JLS 5.1.3).
"""

import decimal
import math
import re
import struct
from fractions import Fraction
from typing import Final

from headgate.java.text import trim

_INTEGER: Final = re.compile(r"[+-]?\d+")
_FLOATING: Final = re.compile(
    r"([+-]?)(?:(NaN)|(Infinity)|([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?[fFdD]?"
    r"|0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP]([+-]?[0-9]+)[fFdD]?)"
)
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,10})?")
_EXPONENT_MAX: Final = 5_000
"""No double has this many digits before the point, or zeros after it."""
_EXACT: Final = decimal.Context(
    prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[]
)


def wrapped(number: int, bits: int) -> int:
    """Return the low `bits` of `number` as a signed number."""
    half = 1 << bits - 1
    return (number + half & (1 << bits) - 1) - half


def clamped(number: int, bits: int) -> int:
    """Return the nearest integer of `bits` bits."""
    half = 1 << bits - 1
    return max(-half, min(half - 1, number))


def truncated(number: float, bits: int) -> int:
    """Return Java's ``(long) number``, or ``(int)`` with 32 bits: rounded towards zero, NaN is 0,
    and a number that does not fit becomes the nearest that does."""
    if math.isnan(number):
        return 0
    if math.isinf(number):
        return clamped(1 << 64 if number > 0 else -(1 << 64), bits)
    return clamped(int(number), bits)


def whole_part(number: decimal.Decimal) -> int:
    """Return the integer of which `BigDecimal.longValue` takes the low 64 bits. For a number that
    ends in so many zeros that these bits are all 0, return 0 without computing it."""
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or exponent >= 64:
        return 0
    if number.adjusted() < 0:
        return 0
    return int(number)


def single(number: float) -> float:
    """Return the nearest Java `float`, as a Python float."""
    try:
        return float(struct.unpack(">f", struct.pack(">f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def single_exactly(number: Fraction) -> float:
    """Return the Java `float` nearest to a number that need not fit a double, rounded only once."""
    double = _double(number)
    if math.isinf(double):
        return double
    found = single(double)
    if math.isinf(found) or Fraction(double) == number or found == double:
        return found
    # Rounding twice is wrong only if the double lies half-way between two floats.
    other = single(math.nextafter(double, math.inf if number > double else -math.inf))
    return (
        other
        if abs(Fraction(double) - Fraction(found)) == abs(Fraction(double) - Fraction(other))
        and other != found
        else found
    )


def single_of(number: int) -> float:
    """Return Java's ``(float) number``."""
    return single_exactly(Fraction(number))


def _double(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def parse_integer(text: str, bits: int | None) -> int:
    """Return what `Long.parseLong` and its siblings return; with `bits` None, ``new
    BigInteger(text)``.

    Raises:
        ValueError: It is no such number, or it does not fit.
    """
    if not _INTEGER.fullmatch(text) or len(text) > _EXPONENT_MAX:
        raise ValueError(f"not a whole number: {text!r}")
    number = int(text)
    if bits is not None and number != wrapped(number, bits):
        raise ValueError(f"not a number of {bits} bits: {text!r}")
    return number


def parse_floating(text: str, *, to_single: bool) -> float:
    """Return what `Double.parseDouble` returns, or `Float.parseFloat` with `to_single`.

    Raises:
        ValueError: It is no such number.
    """
    found = _FLOATING.fullmatch(trim(text))
    if found is None:
        raise ValueError(f"not a number: {text!r}")
    sign, nan, infinity, digits, exponent, hex_digits, hex_exponent = found.groups()
    if nan:
        return math.nan
    if infinity:
        magnitude = math.inf
    elif digits is not None:
        magnitude = _from_decimal(digits, int(exponent or "0"), to_single)
    else:
        magnitude = _from_hex(hex_digits, int(hex_exponent), to_single)
    return -magnitude if sign == "-" else magnitude


def _from_decimal(digits: str, exponent: int, to_single: bool) -> float:
    if not to_single:
        return float(f"{digits}e{exponent}")
    double = float(f"{digits}e{exponent}")
    if double == 0 or math.isinf(double):
        return double
    return single_exactly(Fraction(decimal.Decimal(f"{digits}e{exponent}")))


def _from_hex(digits: str, exponent: int, to_single: bool) -> float:
    whole, _, part = digits.partition(".")
    mantissa = int(whole + part or "0", 16)
    exponent -= 4 * len(part)
    if mantissa == 0 or exponent < -_EXPONENT_MAX - 4 * len(digits):
        return 0.0
    if exponent > _EXPONENT_MAX:
        return math.inf
    number = Fraction(mantissa) * Fraction(2) ** exponent
    return single_exactly(number) if to_single else _double(number)


def parse_big_decimal(text: str) -> decimal.Decimal:
    """Return Java's ``new BigDecimal(text)``.

    Raises:
        ValueError: It is no such number.
    """
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"not a decimal: {text!r}")
    number = _EXACT.create_decimal(text)
    return number.copy_abs() if number.is_zero() else number


def floating(number: decimal.Decimal, *, to_single: bool) -> float:
    """Return what `BigDecimal.doubleValue` returns, or `floatValue` with `to_single`."""
    double = float(number)
    if not to_single or double == 0 or math.isinf(double):
        return double
    return single_exactly(Fraction(number))


def java_float(number: float) -> str:
    """Return what `Float.toString` of Java 19 and later returns for a number that a Java `float`
    holds."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return repr(number)
    mantissa, exponent = _shortest(abs(number))
    sign = "-" if number < 0 else ""
    if not -3 <= exponent < 7:
        return f"{sign}{mantissa[0]}.{mantissa[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{mantissa}"
    padded = mantissa.ljust(exponent + 1, "0")
    return f"{sign}{padded[: exponent + 1]}.{padded[exponent + 1 :] or '0'}"


def _shortest(number: float) -> tuple[str, int]:
    """Return the fewest digits, at least two, that read back as `number`, and the exponent of the
    first."""
    for digits in range(1, 9):
        text = f"{number:.{digits}e}"
        if single(float(text)) == number:
            break
    else:
        text = f"{number:.8e}"
    mantissa, _, exponent = text.partition("e")
    return mantissa.replace(".", "").rstrip("0"), int(exponent)
