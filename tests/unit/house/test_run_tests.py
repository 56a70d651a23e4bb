"""`make test` and `make test-all` run pytest as `tools/run_tests.py` says, tried on folders of toy
tests."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import run_tests

ROOT = Path(__file__).resolve().parents[3]
INI = """
[pytest]
markers =
    slow
    exhaustive
"""
FAST = "def test_fast():\n    assert True\n"
STORY = "def test_story():\n    assert True\n"
SLOW = "import pytest\n\n@pytest.mark.slow\ndef test_slow():\n    assert True\n"
FIRST_TIME_ONLY = """
import pathlib, pytest

@pytest.mark.slow
@pytest.mark.parametrize("n", range({count}))
def test_shaky(n):
    seen = pathlib.Path(__file__).with_name(f"seen-{{n}}")
    if not seen.exists():
        seen.touch()
        raise AssertionError("the first time")
"""
FAILS = "import pytest\n\n@pytest.mark.slow\ndef test_wrong():\n    assert False\n"
ENVIRONMENT = """
import os, pathlib

def test_environment():
    with pathlib.Path(__file__).with_name("seen").open("a") as out:
        seed, tests = os.environ.get("HEADGATE_SEED"), os.environ.get("HEADGATE_TESTS")
        print(seed, tests, os.environ.get("PYTHONHASHSEED"), file=out)
"""
EXHAUSTIVE = """
import pytest

@pytest.mark.exhaustive
@pytest.mark.slow
def test_exhaustive():
    pass
"""
SECOND_TIME = "passed only the second time: tests/test_shaky.py::test_shaky"
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run toy tests, given by file. Return the exit code and the output."""
    for name in ("HEADGATE_SEED", "HEADGATE_TESTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADGATE_TEST_PROCESSES", "0")
    # Without the plugins that toy tests do not need, they take a third of the time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist")

    def ran(files: dict[str, str], given: Sequence[str] = ()) -> tuple[int, str]:
        (tmp_path / "pytest.ini").write_text(INI)
        for name, text in {
            "scenarios/test_stories.py": STORY,
            "test_slow.py": SLOW,
            **files,
        }.items():
            file = tmp_path / "tests" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return run_tests.main(given, tmp_path), capsys.readouterr().out

    return ran


def test_a_slow_test_that_fails_only_the_first_time_is_listed_and_green(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_TEST_PROCESSES", "2")
    code, printed = run({"test_shaky.py": FIRST_TIME_ONLY.format(count=1)})
    assert code == 0, printed
    list_of_them, last = printed.splitlines()[-2:]
    assert list_of_them == f"{SECOND_TIME}[0]"
    assert last.startswith("green in ")


@pytest.mark.exhaustive
def test_more_than_three_that_pass_only_the_second_time_are_not_green(run: Run) -> None:
    code, printed = run({"test_shaky.py": FIRST_TIME_ONLY.format(count=4)})
    assert code == 1, printed
    assert [n for n in range(4) if f"{SECOND_TIME}[{n}]\n" in printed] == list(range(4))
    assert "not green: more than 3 tests passed only the second time\n" in printed


@pytest.mark.exhaustive
def test_a_slow_test_that_always_fails_is_not_green(run: Run) -> None:
    files = {"test_wrong.py": FAILS, "test_shaky.py": FIRST_TIME_ONLY.format(count=1)}
    code, printed = run(files)
    assert code == 1, printed
    assert "failed twice: tests/test_wrong.py::test_wrong\n" in printed
    assert f"{SECOND_TIME}[0]\n" in printed
    assert printed.splitlines()[-1].startswith("FAILED in ")


def test_tests_that_cannot_be_imported_are_not_green(run: Run) -> None:
    code, printed = run({"test_slow.py": "import nothing_of_this_name\n"})
    assert code == 1, printed


@pytest.mark.exhaustive
def test_when_very_many_fail_none_is_run_again(run: Run) -> None:
    code, printed = run({"test_shaky.py": FIRST_TIME_ONLY.format(count=11)})
    assert code == 1, printed
    assert "11 tests failed; more than 10 are not run again\n" in printed


def test_a_fast_test_that_fails_twice_ends_the_run(run: Run) -> None:
    code, printed = run({"test_fast.py": "def test_fast():\n    assert False\n"})
    assert code == 1, printed
    assert "failed twice: tests/test_fast.py::test_fast\n" in printed
    assert "== slow" not in printed


def test_the_list_of_second_times_is_of_all_layers(run: Run) -> None:
    shaky = FIRST_TIME_ONLY.format(count=1)
    fast = shaky.replace("@pytest.mark.slow\n", "").replace("test_shaky", "test_fast")
    code, printed = run({"fast/test_fast.py": fast, "test_shaky.py": shaky})
    assert code == 0, printed
    assert printed.splitlines()[-3:-1] == [
        "passed only the second time: tests/fast/test_fast.py::test_fast[0]",
        f"{SECOND_TIME}[0]",
    ]


def test_all_runs_exhaustive_tests_and_long_histories_and_has_its_own_log(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seed that was left in the environment cuts no test."""
    monkeypatch.setenv("HEADGATE_SEED", "7")
    files = {"scenarios/test_stories.py": ENVIRONMENT, "test_more.py": EXHAUSTIVE}
    code, printed = run(files)
    assert (code, "test_exhaustive" in printed) == (0, False), printed
    code, printed = run(files, ["--all"])
    assert code == 0, printed
    seen = (tmp_path / "tests" / "scenarios" / "seen").read_text().splitlines()
    assert seen == ["None None 0", "None None 4242", "None all 0", "None all 4242"]
    assert "HEADGATE_SEED=7 is passed over" in printed
    slowest = printed.partition("== the 10 slowest tests\n")[2]
    assert "s  tests/test_more.py::test_exhaustive\n" in slowest
    assert (tmp_path / ".logs" / "test-all.log").read_text() == printed


@pytest.mark.parametrize("chosen", ["tests/test_fast.py tests/test_slow.py", "fast or slow"])
def test_a_filter_of_paths_or_names(run: Run, chosen: str) -> None:
    code, printed = run({"test_fast.py": FAST}, [f"--filter={chosen}"])
    assert code == 0, printed
    assert "test_fast.py::test_fast" in printed and "test_slow.py::test_slow" in printed
    assert "scenarios/test_stories.py" not in printed


def test_a_filter_that_selects_nothing_is_not_green(run: Run) -> None:
    code, printed = run({"test_more.py": EXHAUSTIVE}, ["--filter=tests/test_more.py"])
    assert code == 1, printed
    assert "FILTER=tests/test_more.py selects no test; make test-all has more tests\n" in printed


def test_the_table_for_the_order_of_files_is_made_of_the_last_run(run: Run, tmp_path: Path) -> None:
    sleeps = "import time\n\nclass TestIt:\n    def test_sleeps(self):\n        time.sleep(1.1)\n"
    assert run({"test_sleeps.py": sleeps}, ["--filter=tests/test_sleeps.py"])[0] == 0
    assert run_tests.main(["--write-seconds"], tmp_path) == 0
    assert (tmp_path / run_tests.SECONDS).read_text() == "1 tests/test_sleeps.py\n"


def test_files_whose_seconds_are_written_down_are_there() -> None:
    lines = (ROOT / run_tests.SECONDS).read_text().splitlines()
    missing = [line for line in lines if not (ROOT / line.split()[1]).exists()]
    assert not missing


@pytest.mark.parametrize(
    "chosen", ["tests/nowhere", "tests/test_fast.py tests/test_fats.py::test_x"]
)
def test_a_path_that_is_not_there_is_told_at_once(run: Run, chosen: str) -> None:
    code, printed = run({"test_fast.py": FAST}, [f"--filter={chosen}"])
    assert code == 1, printed
    missing = chosen.split()[-1]
    assert f"there is no {missing}; tests/ has scenarios, test_fast.py" in printed
    assert "== fast" not in printed
