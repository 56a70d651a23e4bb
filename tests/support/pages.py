"""Code blocks of pages."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str, language: str) -> list[str]:
    """The blocks of `page`, a path below the project's folder, that are marked with `language`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def block(page: str, language: str, part: str) -> str:
    """The one that has `part` in it."""
    (found,) = (each for each in blocks(page, language) if part in each)
    return found
