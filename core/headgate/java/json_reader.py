"""The slow and exact half of `headgate.java.json`: a JSON reader that behaves as Jackson, byte by
byte. Source: Jackson 2.21, `UTF8StreamJsonParser`, `ByteSourceJsonBootstrapper`,
`StreamReadConstraints`."""

import re
from typing import Any, Final, Literal

from headgate.errors import CoreError

DEPTH_MAX: Final = 1_000
NAME_LENGTH_MAX: Final = 50_000
NUMBER_LENGTH_MAX: Final = 1_000
STRING_LENGTH_MAX: Final = 20_000_000

_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1

_SPACE: Final = frozenset(b" \t\r\n")
_NUMBER: Final = re.compile(rb"-?([0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?)([0-9]+))?")
_NUMBER_START: Final = frozenset(b"-0123456789")
_NUMBER_TAIL: Final = frozenset(b".eE")
_PLAIN_TEXT: Final = re.compile(rb'[^"\\\x00-\x1f\x80-\xff]+')
_HEX: Final = re.compile(rb"[0-9a-fA-F]{4}")
_ESCAPES: Final = {
    ord('"'): '"',
    ord("\\"): "\\",
    ord("/"): "/",
    ord("b"): "\b",
    ord("f"): "\f",
    ord("n"): "\n",
    ord("r"): "\r",
    ord("t"): "\t",
}
_LITERALS: Final[tuple[tuple[bytes, Any], ...]] = (
    (b"null", None),
    (b"true", True),
    (b"false", False),
)


class NotJsonError(CoreError, ValueError):
    """Java's reader refuses these bytes, so no reader may use them."""


def java_long(value: int) -> int:
    """Return `value` after Java's ``(long)`` cast: the low 64 bits, signed."""
    return (value + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def read(data: bytes) -> Any:
    """Return the first value in `data`; None if there is none.

    Raises:
        NotJsonError: Java refuses the bytes. The text says at which byte and why.
    """
    return _Reader(_as_utf8(data)).document()


def _as_utf8(data: bytes) -> bytes:
    """Return `data` in UTF-8. Jackson detects the encoding from the first four bytes; in shorter
    documents it does not recognise a byte order mark."""
    head = data[:4]
    if len(head) == 4:
        if head[:3] == b"\xef\xbb\xbf":
            return data[3:]
        if head == b"\x00\x00\xfe\xff":
            return _from_utf32(data[4:], "big")
        if head == b"\xff\xfe\x00\x00":
            return _from_utf32(data[4:], "little")
        if head[:2] == b"\xfe\xff":
            return _from_utf16(data[2:], "big")
        if head[:2] == b"\xff\xfe":
            return _from_utf16(data[2:], "little")
        if head[:3] == b"\x00\x00\x00":
            return _from_utf32(data, "big")
        if head[1:] == b"\x00\x00\x00":
            return _from_utf32(data, "little")
    if len(head) >= 2:
        if head[0] == 0 and head[1] != 0:
            return _from_utf16(data, "big")
        if head[0] != 0 and head[1] == 0:
            return _from_utf16(data, "little")
    return data


def _from_utf16(data: bytes, order: Literal["big", "little"]) -> bytes:
    """Decode UTF-16 as Java does: half a surrogate pair, together with the unit in place of its
    other half, becomes one U+FFFD."""
    units = [int.from_bytes(data[i : i + 2], order) for i in range(0, len(data) - 1, 2)]
    characters: list[str] = []
    position = 0
    while position < len(units):
        unit = units[position]
        position += 1
        if not 0xD800 <= unit <= 0xDFFF:
            characters.append(chr(unit))
            continue
        low = units[position] if unit <= 0xDBFF and position < len(units) else None
        if low is not None:
            position += 1
        if low is not None and 0xDC00 <= low <= 0xDFFF:
            characters.append(chr(0x10000 + (unit - 0xD800 << 10) + low - 0xDC00))
        else:
            characters.append("\ufffd")
    if len(data) % 2:
        characters.append("\ufffd")
    return "".join(characters).encode()


def _from_utf32(data: bytes, order: Literal["big", "little"]) -> bytes:
    codes = [int.from_bytes(data[i : i + 4], order) for i in range(0, len(data) - 3, 4)]
    for index, code in enumerate(codes):
        if code > 0x10FFFF:
            raise NotJsonError(f"not JSON at byte {4 * index}: no UTF-32 character")
    # Halves of surrogate pairs are accepted here, unlike in UTF-8, and as escapes they pass below
    # too.
    text = "".join(chr(code) if code >> 11 != 0x1B else f"\\u{code:04x}" for code in codes)
    if len(data) % 4 and not text.strip(" \t\r\n"):
        raise NotJsonError(f"not JSON at byte {len(data)}: a UTF-32 character cut short")
    return text.encode()


class _Reader:
    """One pass over one document. Open containers are kept on a list of our own, so that depth
    needs no recursion."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)

    def document(self) -> Any:
        if self.peek() is None:
            return None
        # Each open container: the object or list itself, and the name under which it goes into its
        # parent.
        open_containers: list[tuple[Any, str | None]] = []
        name: str | None = None
        while True:
            byte = self.peek()
            value: Any
            if byte in b"{[" if byte is not None else False:
                self.position += 1
                container: Any = {} if byte == 0x7B else []
                open_containers.append((container, name))
                if len(open_containers) > DEPTH_MAX:
                    raise self.refusal(f"nested deeper than {DEPTH_MAX}")
                name = None
                if self.peek() != (0x7D if byte == 0x7B else 0x5D):
                    name = self.name() if byte == 0x7B else None
                    continue
                self.position += 1
                value, name = open_containers.pop()
            else:
                value = self.scalar(byte, root=not open_containers)
            done, value, name = self.close(open_containers, value, name)
            if done:
                return value

    def close(
        self, open_containers: list[tuple[Any, str | None]], value: Any, name: str | None
    ) -> tuple[bool, Any, str | None]:
        """Put `value` into its container, and every container that ends here into its parent.

        Return whether the document is done, its value, and the name of the next value.
        """
        while open_containers:
            container, outer_name = open_containers[-1]
            is_object = isinstance(container, dict)
            if is_object:
                container[name] = value
            else:
                container.append(value)
            byte = self.peek()
            if byte == 0x2C:
                self.position += 1
                self.peek()
                return False, None, self.name() if is_object else None
            if byte != (0x7D if is_object else 0x5D):
                raise self.refusal("expected a comma or the end of the container")
            self.position += 1
            open_containers.pop()
            value, name = container, outer_name
        return True, value, None

    def peek(self) -> int | None:
        """Return the next byte that is not whitespace; None at the end."""
        data, position, end = self.data, self.position, self.end
        while position < end and data[position] in _SPACE:
            position += 1
        self.position = position
        return data[position] if position < end else None

    def name(self) -> str:
        if self.peek() != 0x22:
            raise self.refusal("expected a name in double quotes")
        start = self.position
        name = self.string(is_name=True)
        if len(name.encode("utf-8", "surrogatepass")) > NAME_LENGTH_MAX:
            self.position = start
            raise self.refusal(f"a name longer than {NAME_LENGTH_MAX} bytes")
        if self.peek() != 0x3A:
            raise self.refusal("expected a colon")
        self.position += 1
        return name

    def scalar(self, byte: int | None, *, root: bool) -> Any:
        if byte == 0x22:
            return self.string()
        if byte in _NUMBER_START:
            return self.number(root=root)
        for text, value in _LITERALS:
            if self.data.startswith(text, self.position):
                self.position += len(text)
                self.check_literal_end()
                return value
        raise self.refusal("expected a value")

    def check_literal_end(self) -> None:
        rest = self.data[self.position : self.position + 1]
        # Jackson fails on anything that is not ASCII here, since it decodes from one byte too far
        # on.
        if rest >= b"\x7f" or rest.isalnum() or rest == b"_":
            raise self.refusal("a word that goes on after null, true or false")

    def number(self, *, root: bool) -> int | float:
        match = _NUMBER.match(self.data, self.position)
        if match is None:
            raise self.refusal("a sign without digits")
        follows = self.data[match.end() : match.end() + 1]
        if follows and (follows[0] in _NUMBER_TAIL or (root and follows[0] not in _SPACE)):
            raise self.refusal("a number that does not end as numbers do")
        whole, fraction, sign, exponent = match.groups(b"")
        if len(whole.lstrip(b"0") or b"0") + len(fraction) + len(exponent) > NUMBER_LENGTH_MAX:
            raise self.refusal(f"a number of more than {NUMBER_LENGTH_MAX} digits")
        if not fraction and not exponent:
            self.position = match.end()
            return java_long(int(match.group()))
        # Java reads a BigDecimal, whose exponent and scale have 32 bits, and which has no -0.
        power = int(sign + exponent) if exponent else 0
        if not (_INT_MIN <= power <= _INT_MAX and _INT_MIN <= len(fraction) - power <= _INT_MAX):
            raise self.refusal("an exponent of more than 32 bits")
        self.position = match.end()
        return float(match.group()) if (whole + fraction).strip(b"0") else 0.0

    def string(self, *, is_name: bool = False) -> str:
        """Read a string from its opening quote on. Two halves of a surrogate pair become one
        character, as in Java; a single half stays."""
        self.position += 1
        start = self.position
        parts: list[str] = []
        halves = False
        while True:
            match = _PLAIN_TEXT.match(self.data, self.position)
            if match is not None:
                parts.append(match.group().decode("ascii"))
                self.position = match.end()
            if self.position >= self.end:
                raise self.refusal("a string without its end")
            byte = self.data[self.position]
            if byte == 0x22:
                self.position += 1
                break
            if byte < 0x20:
                raise self.refusal("a control character inside a string")
            if byte != 0x5C:
                part = self.wide(byte, is_name=is_name)
            else:
                part = self.pair() if is_name else self.escape()
            halves = halves or "\ud800" <= part[0] <= "\udfff"
            parts.append(part)
        text = "".join(parts)
        if halves:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        if len(text) > STRING_LENGTH_MAX:
            self.position = start
            raise self.refusal(f"a string longer than {STRING_LENGTH_MAX}")
        return text

    def pair(self) -> str:
        """Read an escape in a name, where halves of surrogate pairs must come together."""
        start = self.position
        first = self.escape()
        if not "\ud800" <= first <= "\udfff":
            return first
        second = self.escape() if self.data.startswith(b"\\u", self.position) else ""
        if first > "\udbff" or not "\udc00" <= second <= "\udfff":
            self.position = start
            raise self.refusal("half a surrogate pair in a name")
        return first + second

    def escape(self) -> str:
        code = self.data[self.position + 1 : self.position + 2]
        if code == b"u":
            match = _HEX.match(self.data, self.position + 2)
            if match is None:
                raise self.refusal("\\u without four hexadecimal digits")
            self.position += 6
            return chr(int(match.group(), 16))
        if not code or code[0] not in _ESCAPES:
            raise self.refusal("an escape that JSON does not have")
        self.position += 2
        return _ESCAPES[code[0]]

    def wide(self, byte: int, *, is_name: bool) -> str:
        """Read one character of two to four bytes, by Jackson's arithmetic: overlong forms are
        accepted, and their result differs between names and strings."""
        if byte & 0xE0 == 0xC0:
            count, code = 1, byte & 0x1F
        elif byte & 0xF0 == 0xE0:
            count, code = 2, byte & 0x0F
        elif byte & 0xF8 == 0xF0:
            count, code = 3, byte & 0x07
        else:
            raise self.refusal(f"0x{byte:02x} begins no UTF-8 character")
        for index in range(1, count + 1):
            tail = self.data[self.position + index : self.position + index + 1]
            if not tail or tail[0] & 0xC0 != 0x80:
                raise self.refusal("a UTF-8 character cut short")
            code = code << 6 | tail[0] & 0x3F
        if count == 2 and 0xD800 <= code <= 0xDFFF:
            raise self.refusal("half a surrogate pair in UTF-8")
        self.position += count + 1
        if count < 3:
            return chr(code)
        code -= 0x10000
        high = 0xD800 + (code >> 10) if is_name else 0xD800 | code >> 10
        return chr(high & 0xFFFF) + chr(0xDC00 | code & 0x3FF)

    def refusal(self, why: str) -> NotJsonError:
        return NotJsonError(f"not JSON at byte {self.position}: {why}")
