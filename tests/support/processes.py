"""The order of tests, and which of them share a process, when several processes run them."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

SECONDS = Path(__file__).parents[1] / "file_seconds.txt"
"""How long the tests of a file took; `tools/run_tests.py --write-seconds` writes it."""
ON_SPARK = "spark_server"
"""The fixture of files that share one process, since Spark is started once for each process."""


class SparkOnce(LoadFileScheduling):
    """A scheduler that gives a process whole files, and gives all files that need the session's
    Spark to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(Path(self.config.rootpath, nodeid.partition("::")[0]))


@cache
def scope(file: Path) -> str:
    """Return the scope of a file. One process runs all files of a scope."""
    if file.is_file() and ON_SPARK in file.read_text(encoding="utf-8"):
        return ON_SPARK
    return str(file)


def longest_scopes_first(items: list[pytest.Item], seconds: dict[Path, float]) -> None:
    """Sort `items` so that all processes are busy to the end."""
    took: dict[str, float] = {}
    for file in dict.fromkeys(item.path for item in items):
        took[scope(file)] = took.get(scope(file), 0.0) + seconds.get(file, 0.0)
    items.sort(key=lambda item: (-took[scope(item.path)], scope(item.path)))


def seconds_of_files(root: Path, lines: Iterable[str]) -> dict[Path, float]:
    """Return the table of `SECONDS`."""
    rows = (line.split() for line in lines)
    return {root / file: float(number) for number, file in rows}
