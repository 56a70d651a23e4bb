"""Find the faults of a Markdown page: long sentences, riddle words, broken links and references.

`faults` returns a line of text for each fault. Blocks of code are not looked at.
"""

import importlib
import importlib.util
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from headgate_runtime.config.settings import KEYS

WORDS_MAX: Final = 35
"""Most words of a sentence. A piece of code counts as one word."""
FOLDERS: Final = (
    *("core", "adapters", "runtime", "connectors", "specs", "tests", "bench", "docs", "examples"),
    *("tools", "requirements", ".ci"),
)
"""A reference that begins with one of these folders is a path of this repository."""
PACKAGES: Final = (
    *("headgate", "headgate_arrow", "headgate_connectors", "headgate_embedded"),
    *("headgate_kafka", "headgate_rest"),
    *("headgate_registry", "headgate_runtime", "headgate_spark", "local_kafka"),
)
"""A dotted reference that begins with one of these names is a module, or a name in a module."""
NO_MODULES: Final = frozenset(
    {
        *KEYS,
        *("headgate.connectors", "headgate.config_providers"),  # groups of entry points
        *("headgate.db", "headgate.lock"),  # files of a data folder
        "headgate.schema",  # a parameter of messages in Protobuf
        *("headgate.properties", "headgate.task"),  # a file of users, and a logger
    }
)
_RIDDLE = re.compile(r"\b(?:by|to|of|with|for|from|at|on|in) who\b", re.IGNORECASE)
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|etc|cf)\.", re.IGNORECASE)
_SENTENCE_END = re.compile(r"""(?<=[.!?])["')\]]*\s+(?=["'(\[]*[A-Z0-9])""")
_CODE_WORD = "Code"
_A_PATH = re.compile(r"[\w.{},*/-]+")
_A_NAME = re.compile(r"\w+(?:\.\w+)+")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True)
class Text:
    """A paragraph, a heading, an item of a list or a cell of a table."""

    line: int
    inline: Token
    heading: bool

    @property
    def prose(self) -> str:
        """The text as it is read, with one word in place of each piece of code."""
        parts = []
        for token in self.inline.children or ():
            match token.type:
                case "text":
                    parts.append(token.content)
                case "code_inline":
                    parts.append(_CODE_WORD)
                case "softbreak" | "hardbreak":
                    parts.append(" ")
        return "".join(parts)

    @property
    def codes(self) -> Iterator[str]:
        return (one.content for one in self.inline.children or () if one.type == "code_inline")

    @property
    def links(self) -> Iterator[str]:
        for token in self.inline.children or ():
            found = token.attrGet("href") or token.attrGet("src")
            if found is not None:
                yield str(found)


def texts(markdown: str) -> Iterator[Text]:
    """Yield all prose, lists and tables included. Blocks of code and HTML are left out."""
    before = None
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        if token.type == "inline":
            line = 1 + (token.map[0] if token.map else 0)
            yield Text(line, token, before is not None and before.type == "heading_open")
        before = token


def anchors(markdown: str) -> set[str]:
    """Return the anchors of the page's headings, as GitHub makes them for links with ``#...``."""
    found: set[str] = set()
    for text in texts(markdown):
        if text.heading:
            children = text.inline.children or ()
            words = "".join(one.content for one in children).strip().lower()
            kept = "".join(one for one in words if one in " -_" or _is_word(one))
            base = slug = kept.replace(" ", "-")
            count = 0
            while slug in found:
                count += 1
                slug = f"{base}-{count}"
            found.add(slug)
    return found


def faults(page: Path, root: Path) -> list[str]:
    """Return the faults of a page.

    Args:
        page: below `root`, the top of the repository.

    Returns:
        Texts such as ``README.md:7: 41 words in a sentence: ...``, in the order of the page.
    """
    where = page.relative_to(root)
    return [
        f"{where}:{text.line}: {fault}"
        for text in texts(page.read_text(encoding="utf-8"))
        for fault in (*_of_prose(text), *_of_links(text, page), *_of_codes(text, root))
    ]


def _of_prose(text: Text) -> Iterator[str]:
    prose = _ABBREVIATION.sub(r"\1", " ".join(text.prose.split()))
    for sentence in _SENTENCE_END.split(prose):
        count = sum(any(map(str.isalnum, word)) for word in sentence.split())
        if count > WORDS_MAX:
            yield f"{count} words in a sentence, expected at most {WORDS_MAX}: {sentence}"
        for found in _RIDDLE.finditer(sentence):
            yield f"{found.group()!r}: name the one who is meant, or write 'whom': {sentence}"


def _of_links(text: Text, page: Path) -> Iterator[str]:
    for link in text.links:
        if _ELSEWHERE.match(link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (page.parent / name) if name else page
        if not target.exists():
            yield f"link to {link}: there is no such file"
        elif anchor and (
            target.suffix != ".md" or anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            yield f"link to {link}: there is no such heading"


def _of_codes(text: Text, root: Path) -> Iterator[str]:
    for code in text.codes:
        if _A_PATH.fullmatch(code) and code.partition("/")[0] in FOLDERS and "/" in code:
            for path in _expanded(code):
                if not any(root.glob(path.rstrip("/"))):
                    yield f"`{code}`: there is no {path} in the repository"
        name = code.removesuffix("()")
        named = _A_NAME.fullmatch(name) and name.partition(".")[0] in PACKAGES
        if named and name not in NO_MODULES and not _resolves(name):
            yield f"`{code}`: there is no such module, nor a name in one, nor a setting"


def _expanded(path: str) -> Iterator[str]:
    """Yield each path that a pattern such as ``a/{b,c}.py`` stands for."""
    found = re.search(r"\{([^{}]*)\}", path)
    if found is None:
        yield path
        return
    for choice in found[1].split(","):
        yield from _expanded(path[: found.start()] + choice + path[found.end() :])


@cache
def _resolves(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of something in a module."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[:count])
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            continue
        if found is not None:
            return count == len(parts) or _has(module, parts[count:])
    return False


def _has(module: str, attributes: list[str]) -> bool:
    value: object = importlib.import_module(module)
    for attribute in attributes:
        annotated = attribute in getattr(value, "__annotations__", {})
        if not hasattr(value, attribute):
            return annotated
        value = getattr(value, attribute)
    return True


def _is_word(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "LNM"
