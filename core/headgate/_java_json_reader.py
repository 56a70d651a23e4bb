"""The slow and exact half of `headgate.java_json`: a JSON reader with Jackson's habits, byte by
byte. Source: Jackson 2.21, `UTF8StreamJsonParser`, `ByteSourceJsonBootstrapper`,
`StreamReadConstraints`."""

import re
from typing import Any, Final

from headgate.errors import CoreError

DEPTH_MAX: Final = 500
NAME_LENGTH_MAX: Final = 50_000
NUMBER_LENGTH_MAX: Final = 1_000
STRING_LENGTH_MAX: Final = 20_000_000

_SPACE: Final = frozenset(b" \t\r\n")
_NUMBER: Final = re.compile(rb"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
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
    """Java's reader refuses these bytes, so they say nothing to any reader."""


def java_long(value: int) -> int:
    """`value` as Java's ``(long)`` leaves it: the low 64 bits, signed."""
    return (value + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def read(data: bytes) -> Any:
    """The first value in `data`; None if there is none.

    Raises:
        NotJsonError: says at which byte and why.
    """
    return _Reader(_as_utf8(data)).document()


def _as_utf8(data: bytes) -> bytes:
    """`data` in UTF-8. Which encoding it is in Jackson tells from the first four bytes."""
    if data[:3] == b"\xef\xbb\xbf":
        return data[3:]
    encoding = _wide_encoding(data[:4])
    if encoding is None:
        return data
    return data.decode(encoding, "replace").encode("utf-8", "surrogatepass")


def _wide_encoding(head: bytes) -> str | None:
    if len(head) == 4:
        if head in (b"\x00\x00\xfe\xff", b"\xff\xfe\x00\x00"):
            return "utf-32"
        if head[:3] == b"\x00\x00\x00":
            return "utf-32-be"
        if head[1:] == b"\x00\x00\x00":
            return "utf-32-le"
    if head[:2] in (b"\xfe\xff", b"\xff\xfe"):
        return "utf-16"
    if len(head) >= 2:
        if head[0] == 0 and head[1] != 0:
            return "utf-16-be"
        if head[0] != 0 and head[1] == 0:
            return "utf-16-le"
    return None


class _Reader:
    """One pass over one document. Containers are kept on a list of our own, so that depth costs no
    recursion."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)

    def document(self) -> Any:
        if self.peek() is None:
            return None
        # Each open container: the object or list itself, and the name its next value goes under.
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
        """Put `value` into its container, and every container that ends here into its own.

        Returns whether the document is done, its value, and the name that the next value goes
        under."""
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
        """The next byte that is not whitespace, None at the end."""
        data, position, end = self.data, self.position, self.end
        while position < end and data[position] in _SPACE:
            position += 1
        self.position = position
        return data[position] if position < end else None

    def name(self) -> str:
        if self.peek() != 0x22:
            raise self.refusal("expected a name in double quotes")
        start = self.position
        name = self.string()
        if len(name) > NAME_LENGTH_MAX:
            self.position = start
            raise self.refusal(f"a name longer than {NAME_LENGTH_MAX}")
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
        rest = self.data[self.position : self.position + 4].decode("utf-8", "ignore")[:1]
        if rest >= "0" and (f"a{rest}".isidentifier() or rest == "\x7f"):
            raise self.refusal("a word that goes on after null, true or false")

    def number(self, *, root: bool) -> int | float:
        match = _NUMBER.match(self.data, self.position)
        if match is None:
            raise self.refusal("a sign without digits")
        text = match.group()
        follows = self.data[match.end() : match.end() + 1]
        if follows and (follows[0] in _NUMBER_TAIL or (root and follows[0] not in _SPACE)):
            raise self.refusal("a number that does not end as numbers do")
        if len(text.lstrip(b"-").lstrip(b"0")) > NUMBER_LENGTH_MAX:
            raise self.refusal(f"a number longer than {NUMBER_LENGTH_MAX}")
        self.position = match.end()
        if match.group(1) is None and match.group(2) is None:
            return java_long(int(text))
        return float(text)

    def string(self) -> str:
        """From the opening quote on. What Java reads as two halves of a surrogate pair becomes the
        one character it means; a half alone stays."""
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
            part = self.escape() if byte == 0x5C else self.wide(byte)
            halves = halves or "\ud800" <= part[0] <= "\udfff"
            parts.append(part)
        text = "".join(parts)
        if halves:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        if len(text) > STRING_LENGTH_MAX:
            self.position = start
            raise self.refusal(f"a string longer than {STRING_LENGTH_MAX}")
        return text

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

    def wide(self, byte: int) -> str:
        """One character of two to four bytes, by Jackson's arithmetic: only the lengths are
        checked."""
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
        self.position += count + 1
        if count < 3:
            return chr(code)
        code -= 0x10000
        return chr((0xD800 | code >> 10) & 0xFFFF) + chr(0xDC00 | code & 0x3FF)

    def refusal(self, why: str) -> NotJsonError:
        return NotJsonError(f"not JSON at byte {self.position}: {why}")
