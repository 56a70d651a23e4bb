"""One process runs all files that need the session's Spark, and the longest scope comes first."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.processes import ON_SPARK, longest_scopes_first, scope, seconds_of_files

ROOT = Path(__file__).resolve().parents[3]
SINK, SOURCE = ROOT / "tests/e2e/test_spark_sink.py", ROOT / "tests/e2e/test_spark_source.py"


def test_files_on_spark_are_one_scope_and_each_other_file_is_its_own() -> None:
    assert scope(SINK) == scope(SOURCE) == ON_SPARK
    assert scope(Path(__file__).with_name("test_house.py")).endswith("house/test_house.py")


def test_the_scope_that_takes_longest_comes_first_and_stays_together() -> None:
    first, second = Path("tests/test_a.py"), Path("tests/test_b.py")
    items: list[Any] = [SimpleNamespace(path=path) for path in (SINK, first, SOURCE, second)]
    seconds = seconds_of_files(
        ROOT, ["5 tests/e2e/test_spark_sink.py", "5 tests/e2e/test_spark_source.py"]
    )
    longest_scopes_first(items, {**seconds, first: 9.0, second: 11.0})
    assert [item.path for item in items] == [second, SINK, SOURCE, first]
