"""Code blocks of Markdown pages."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of `page` that are marked with `language`. The page is a path below the top
    of the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def block(page: str, language: str, part: str) -> str:
    """Return the one block that contains `part`."""
    (found,) = (each for each in blocks(page, language) if part in each)
    return found
