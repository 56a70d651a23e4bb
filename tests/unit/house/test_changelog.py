"""The changelog: each line is short, stands once, and stands under its area."""

from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[3] / "CHANGELOG.md"
KINDS = ("### Added", "### Changed", "### Fixed")
AREAS = (
    "Pipelines on one machine",
    "Workers on Kafka",
    "Commands",
    "REST API",
    "gRPC API",
    "Connectors",
    "Spark",
    "Records, schemas and errors",
    "Metrics and logs",
    "Writing connectors, and the core as a library",
)
CHARACTERS_MAX = 150


def faults(text: str) -> list[str]:
    """Return what is wrong with a changelog, below its first version heading."""
    found = []
    kind = area = -1
    seen: set[str] = set()
    for number, line in enumerate(text[text.index("\n## ") :].splitlines()):
        if line.startswith("## "):
            kind = area = -1
        elif line in KINDS:
            if KINDS.index(line) <= kind:
                found.append(f"{number}: {line} stands behind a later one, or twice")
            kind, area = KINDS.index(line), -1
        elif line.startswith("#### "):
            name = line.removeprefix("#### ")
            if name not in AREAS or AREAS.index(name) <= area:
                found.append(f"{number}: {name!r} is no area, or not in the order of AREAS")
            area = AREAS.index(name) if name in AREAS else area
        elif line.startswith("- "):
            if kind < 0 or area < 0:
                found.append(f"{number}: a line under no area: {line}")
            if len(line) > CHARACTERS_MAX:
                found.append(f"{number}: {len(line)} characters, at most {CHARACTERS_MAX}: {line}")
            if line in seen:
                found.append(f"{number}: stands twice: {line}")
            seen.add(line)
        elif line:
            found.append(f"{number}: neither a heading nor a line of a list: {line}")
    return found


def test_it_is_short_and_sorted_by_area() -> None:
    found = faults(CHANGELOG.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


def test_what_is_wrong_is_found() -> None:
    good = "# C\n\n## Unreleased\n\n### Added\n\n#### Commands\n\n- One.\n\n#### Spark\n\n- Two.\n"
    assert not faults(good)
    for wrong in (
        good.replace("#### Commands\n", ""),
        good.replace("Commands", "Connector"),
        good.replace("Commands", "Spark").replace("Spark\n\n- Two", "Commands\n\n- Two"),
        good.replace("Two", "One"),
        good.replace("Two", "x" * CHARACTERS_MAX),
        good.replace("- Two", "Two"),
        good + "\n### Added\n",
    ):
        assert faults(wrong), wrong
