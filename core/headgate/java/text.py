"""Java's `String.split` and `String.trim`."""

from typing import Final

_SPACE: Final = "".join(map(chr, range(0x21)))


def split(text: str, by: str) -> list[str]:
    """Return Java's `text.split(by)`: empty parts at the end are left out, and an empty text gives
    one empty part."""
    if not text:
        return [text]
    parts = text.split(by)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def trim(text: str) -> str:
    """Return Java's `text.trim()`."""
    return text.strip(_SPACE)
