"""Text as Java's `String` takes it apart."""

from typing import Final

_SPACE: Final = "".join(map(chr, range(0x21)))


def split(text: str, by: str) -> list[str]:
    """`text.split(by)`: empty parts at the end are left out; of an empty text the whole is left."""
    if not text:
        return [text]
    parts = text.split(by)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def trim(text: str) -> str:
    """`text.trim()`."""
    return text.strip(_SPACE)
