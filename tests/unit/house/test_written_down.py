"""No file may have places of one machine, or links to pages that do not exist."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = (
    *("core", "adapters", "runtime", "connectors", "specs", "tests", "bench", "docs", "examples"),
    *("tools", "requirements", ".ci"),
)
KINDS = {".py", ".md", ".txt", ".toml", ".sh", ".in", ".cfg", ""}
MADE = {
    *("__pycache__", "state", "in", "out", "typed-state", "typed-in", "typed-out"),
    *(".bin", "headgatev1"),
}
"""Folders of caches, and what the demo and the example in Go write beside their files."""
A_HOME = re.compile(r"/(?:home|Users|root|work)/\w")
A_PAGE = re.compile(r"(?<![\w*{/.-])((?:[\w-]+/)*[\w-]+\.md)\b")


def texts() -> Iterator[tuple[Path, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            skipped = MADE & set(path.relative_to(ROOT).parts) or path == Path(__file__).resolve()
            if path.is_file() and path.suffix in KINDS and not skipped:
                yield path, path.read_text(encoding="utf-8")
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml"):
        yield ROOT / name, (ROOT / name).read_text(encoding="utf-8")


def test_no_home_folder_and_no_work_tree() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path, text in texts()
        for found in A_HOME.finditer(text)
    ]
    assert not wrong


def test_pages_that_are_cited_are_here() -> None:
    pages = {str(path.relative_to(ROOT)) for path in ROOT.glob("*.md")}
    for folder in ("docs", "specs", "tests", "examples"):
        pages |= {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.md")}
    wrong = [
        f"{path.relative_to(ROOT)} cites {name}"
        for path, text in texts()
        for name in A_PAGE.findall(text)
        if not any(page == name or page.endswith("/" + name) for page in pages)
    ]
    assert not wrong
