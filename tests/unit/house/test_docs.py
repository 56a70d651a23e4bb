"""Pages for readers: short sentences, no riddle words, links and references that lead somewhere."""

from pathlib import Path

import pytest
from support.house.pages import anchors, faults

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
NOT_YET: frozenset[str] = frozenset()
"""Pages with known faults. Take a page out as soon as it passes."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("name", [name_of(page) for page in PAGES if name_of(page) not in NOT_YET])
def test_page_is_plain_and_its_references_resolve(name: str) -> None:
    found = faults(ROOT / name, ROOT)
    assert not found, "\n".join(found)


def test_pages_listed_as_not_yet_good_still_have_faults() -> None:
    for name in sorted(NOT_YET):
        assert (ROOT / name).exists(), f"{name} is gone: take it out of NOT_YET"
        assert faults(ROOT / name, ROOT), f"{name} has no fault any more: take it out of NOT_YET"


# -- the checker itself, on samples --

LONG = " ".join(["Word"] * 36)
SAMPLES = {
    "a long sentence": (f"{LONG}.\n", "36 words in a sentence"),
    "a long sentence over several lines": (f"{LONG.replace(' ', chr(10))}.\n", "36 words"),
    "a long sentence with colon and semicolon": (f"a: {LONG[:80]}; {LONG}.\n", "words in a sent"),
    "a long sentence in a list": (f"- short\n- {LONG}\n", "36 words in a sentence"),
    "a long heading": (f"# {LONG}\n", "36 words in a sentence"),
    "a long sentence in a cell": (f"| a | b |\n| --- | --- |\n| x | {LONG} |\n", "36 words"),
    "a long sentence after an abbreviation": (f"e.g. A {LONG[:-5]}\n", "37 words in a sentence"),
    "a long sentence with code": (f"`a b c` {LONG[:-5]}\n", "36 words in a sentence"),
    "a riddle": ("It is done by who leads.\n", "'by who'"),
    "a riddle over two lines": ("It is given to\nwho leads.\n", "'to who'"),
    "a riddle in a cell": ("| a |\n| --- |\n| Names of who knows |\n", "'of who'"),
    "a link to no file": ("[there](other.txt)\n", "link to other.txt: there is no such file"),
    "a link to no folder": ("![it](pictures/run.png)\n", "there is no such file"),
    "a link to no heading here": ("[there](#not-here)\n", "there is no such heading"),
    "a link to no heading elsewhere": ("[there](README.md#bad)\n", "there is no such heading"),
    "a link by reference": ("[there][1]\n\n[1]: other.txt\n", "there is no such file"),
    "a path": ("See `core/headgate/nothing.py`.\n", "there is no core/headgate/nothing.py"),
    "one of two paths": ("See `docs/{README,bad}.txt`.\n", "there is no docs/bad.txt"),
    "paths by a pattern": ("See `docs/*.toml`.\n", "there is no docs/*.toml"),
    "a folder": ("See `specs/none/`.\n", "there is no specs/none/"),
    "a module": ("See `headgate.nothing`.\n", "no such module"),
    "a name in a module": ("See `headgate.ports.Nothing`.\n", "no such module"),
    "a module of an adapter": ("See `headgate_kafka.nothing.at_all()`.\n", "no such module"),
    "a setting that is none": ("Set `headgate.task.runers`.\n", "nor a setting"),
}
GOOD = f"""# A good page, with `code`

{LONG.removesuffix(" Word")}. {LONG.removesuffix(" Word")}! Is it? [Yes](#a-good-page-with-code),
and [here](README.md#again-1), and [elsewhere](https://example.org/not/asked#for).

## Again

Those who know to whom it belongs. `docs/README.txt`, `docs/{{README,index}}.md`, `docs/*.md`,
`docs/`.

## Again

`headgate.ports`, `headgate.ports.TransportError`, `headgate.task.runner`, `headgate.db`,
`/connectors/{{c}}/status`, `in/*.jsonl`, `connectors`, `producer.override.acks`.

```
{LONG} by who leads, `core/headgate/nothing.py`, [there](other.txt)
```
"""


def write_pages(root: Path, text: str) -> Path:
    folder = root / "docs"
    folder.mkdir()
    (folder / "README.md").write_text(GOOD, encoding="utf-8")
    (folder / "README.txt").touch()
    page = folder / "index.md"
    page.write_text(text, encoding="utf-8")
    return page


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_check_finds(sample: str, tmp_path: Path) -> None:
    text, expected = SAMPLES[sample]
    found = faults(write_pages(tmp_path, text), tmp_path)
    assert len(found) == 1
    assert expected in found[0]


def test_the_check_finds_nothing_on_a_good_page(tmp_path: Path) -> None:
    assert faults(write_pages(tmp_path, GOOD), tmp_path) == []


def test_the_check_says_where_a_fault_is(tmp_path: Path) -> None:
    page = write_pages(tmp_path, "# Title\n\nGood.\n\n| a |\n| --- |\n| b |\n| of who |\n")
    assert [fault.split(" ")[0] for fault in faults(page, tmp_path)] == [
        f"{page.relative_to(tmp_path)}:8:"
    ]


def test_anchors_are_those_of_github() -> None:
    headings = "# What to do when …\n## `[cluster]`\n## Two with one `group.id`\n## a_b – c\n"
    assert anchors(headings) == {
        "what-to-do-when-",
        "cluster",
        "two-with-one-groupid",
        "a_b--c",
    }
