"""Runs the tests: what `make test` runs, or with `--all` what `make test-all` runs.

Fast tests come first, and a layer that fails ends the run. A test that fails is run once more,
alone, after the others of its layer. Everything that is printed is in `.logs/` too.

HEADGATE_TEST_PROCESSES: how many processes run tests side by side; 3 if not set.
"""

import argparse
import codecs
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
LOGS = ".logs"
SECONDS = Path("tests", "file_seconds.txt")
"""Seconds that the tests of each file took. tests/conftest.py begins with the longest."""
PROCESSES = "3"
"""Default number of processes, for two cores. Tests spend a third of their time waiting for
processes, sessions and brokers."""
SECOND_TIMES = 3
"""Maximum number of tests that may pass only the second time."""
TRIED_AGAIN = 10
"""Maximum number of failed tests that are run again. If more fail, something is broken."""
SLOWEST = 10
SHOWN = 40
"""Maximum number of names that are listed beside a missing path."""
PASSED, FAILED, NO_TESTS = 0, 1, 5
"""Exit codes of pytest."""


@dataclass(frozen=True)
class Layer:
    """A set of tests that pytest runs together."""

    name: str
    title: str
    marks: str
    folder: str = "tests"
    hash_seed: str | None = None
    spread: bool = True
    """Whether the tests are spread over several processes."""
    again: bool = False
    """Whether a test that fails is run once more."""
    within: str = ""
    """Only files with this text have tests of the layer. To collect all files takes half a
    minute."""


LAYERS = (
    Layer(
        name="fast",
        title="fast: scenarios, laws, contracts, units (hash seed 0)",
        marks="not slow",
        hash_seed="0",
        again=True,
    ),
    Layer(
        name="scenarios",
        title="scenarios again under another hash seed",
        marks="not slow",
        folder="tests/scenarios",
        hash_seed="4242",
        spread=False,
    ),
    Layer(
        name="slow",
        title="slow: real processes, real Spark, real kills",
        marks="slow",
        again=True,
        within="mark.slow",
    ),
)


class Run:
    """One run of all layers.

    Args:
        everything: also run exhaustive tests and long random histories.
        chosen: paths of tests, or an expression for `pytest -k`. Empty: all tests.
    """

    def __init__(self, root: Path, everything: bool, chosen: str) -> None:
        self._root = root
        self._all = everything
        self._chosen = chosen
        self._logs = root / LOGS
        self._logs.mkdir(exist_ok=True)
        self._log = self._logs / ("test-all.log" if everything else "test.log")
        self._log.write_text("")
        for old in self._logs.glob("*.xml"):
            old.unlink()
        self._second_time: list[str] = []
        self._selected = False

    def run(self) -> int:
        """Run all layers. Returns the exit code: 0 if all are green."""
        began = time.monotonic()
        if missing := self._missing():
            self._say(f"FILTER={self._chosen}: there is no {missing}; nothing was run")
            return 1
        seed = os.environ.get("HEADGATE_SEED")
        if seed:
            self._say(
                f"HEADGATE_SEED={seed} is passed over: with it random tests try that seed alone; "
                "see tests/simulation"
            )
        green = all(self._passes(layer) for layer in LAYERS)
        self._say_slowest()
        if green and not self._selected:
            hint = "" if self._all else "; make test-all has more tests"
            self._say(f"FILTER={self._chosen} selects no test{hint}")
            green = False
        for name in self._second_time:
            self._say(f"passed only the second time: {name}")
        if len(self._second_time) > SECOND_TIMES:
            self._say(f"not green: more than {SECOND_TIMES} tests passed only the second time")
            green = False
        took = (
            f"in {time.monotonic() - began:.0f} s; the log is {self._log.relative_to(self._root)}"
        )
        self._say(f"{'green' if green else 'FAILED'} {took}")
        return 0 if green else 1

    def _missing(self) -> str:
        """Return the first chosen path that does not exist, and the names beside it.

        Only a word that begins with a folder of the root is a path. `config-log/target-state`, for
        example, is the name of a scenario.
        """
        for word in shlex.split(self._chosen):
            place = self._root / word.partition("::")[0]
            first, slash, _ = word.partition("/")
            if slash and (self._root / first).is_dir() and not place.exists():
                above = next(each for each in place.parents if each.is_dir())
                beside = sorted(each.name for each in above.iterdir() if each.name[0] not in "._")
                return f"{word}; {above.relative_to(self._root)}/ has {', '.join(beside[:SHOWN])}"
        return ""

    def _passes(self, layer: Layer) -> bool:
        places = self._places(layer)
        if not places:
            return True
        self._say(f"\n== {layer.title}")
        cache = self._logs / f"cache-{layer.name}"
        shutil.rmtree(cache, ignore_errors=True)
        xml = f"--junitxml={LOGS}/{layer.name}.xml"
        spread = [
            "-n",
            os.environ.get("HEADGATE_TEST_PROCESSES") or PROCESSES,
            "--dist",
            "loadfile",
        ]
        spread.append("--no-loadscope-reorder")
        code = self._pytest(layer, cache, [*(spread if layer.spread else []), xml, *places])
        if code == NO_TESTS and self._chosen:
            return True
        self._selected = True
        if code == FAILED and layer.again:
            return self._passes_again(layer, cache, places)
        return code == PASSED

    def _passes_again(self, layer: Layer, cache: Path, places: Sequence[str]) -> bool:
        failed = last_failed(cache)
        if len(failed) > TRIED_AGAIN:
            self._say(f"{len(failed)} tests failed; more than {TRIED_AGAIN} are not run again")
            return False
        self._say(f"\n== again, alone: {', '.join(failed)}")
        only = ["--last-failed", "--last-failed-no-failures=none"]
        code = self._pytest(layer, cache, [*only, *places])
        twice = last_failed(cache)
        self._second_time += [name for name in failed if name not in twice]
        for name in twice:
            self._say(f"failed twice: {name}")
        return code == PASSED and not twice

    def _places(self, layer: Layer) -> list[str]:
        """Return the arguments with which pytest selects this layer's tests. Empty: there are
        none."""
        words = shlex.split(self._chosen)
        if not words:
            return self._files(layer) if layer.within else [layer.folder]
        if not all((self._root / word.partition("::")[0]).exists() for word in words):
            return [layer.folder, "-k", self._chosen]
        within = self._root / layer.folder
        if layer.folder == "tests":
            return words
        return [word for word in words if (self._root / word).is_relative_to(within)]

    def _files(self, layer: Layer) -> list[str]:
        files = sorted((self._root / layer.folder).rglob("test_*.py"))
        found = [file for file in files if layer.within in file.read_text(encoding="utf-8")]
        return [str(file.relative_to(self._root)) for file in found]

    def _pytest(self, layer: Layer, cache: Path, given: Sequence[str]) -> int:
        marks = layer.marks if self._all else f"({layer.marks}) and not exhaustive"
        command = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={cache}", "-m", marks]
        return self._follow([*command, *given], self._environment(layer))

    def _environment(self, layer: Layer) -> dict[str, str]:
        """Return the environment of pytest. HEADGATE_SEED is left out, since it is meant for one
        test: with it, all random tests would try only that seed."""
        found = {
            name: text
            for name, text in os.environ.items()
            if name not in ("HEADGATE_SEED", "HEADGATE_TESTS")
        }
        if self._all:
            found["HEADGATE_TESTS"] = "all"
        if layer.hash_seed is not None:
            found["PYTHONHASHSEED"] = layer.hash_seed
        return found

    def _follow(self, command: Sequence[str], environment: dict[str, str]) -> int:
        """Run a command, and print what it writes to the log. A pipe is not used, since it would
        stay open as long as any process of a test lives."""
        text = codecs.getincrementaldecoder("utf-8")("replace")
        with self._log.open("ab") as log, self._log.open("rb") as reader:
            reader.seek(0, os.SEEK_END)
            process = subprocess.Popen(
                command, cwd=self._root, env=environment, stdout=log, stderr=log
            )
            ended = False
            while not ended:
                try:
                    process.wait(0.2)
                    ended = True
                except subprocess.TimeoutExpired:
                    pass
                except KeyboardInterrupt:
                    process.wait()  # the command got the same Ctrl-C
                    raise
                sys.stdout.write(text.decode(reader.read()))
                sys.stdout.flush()
        return process.returncode

    def _say(self, line: str) -> None:
        print(line, flush=True)
        with self._log.open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def _say_slowest(self) -> None:
        self._say(f"\n== the {SLOWEST} slowest tests")
        for name, seconds in longest_first(seconds_of_tests(self._logs))[:SLOWEST]:
            self._say(f"{seconds:7.1f} s  {name}")


def last_failed(cache: Path) -> list[str]:
    """Return the names of tests, from pytest's cache, that failed and have not passed since."""
    file = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


def seconds_of_tests(logs: Path) -> dict[str, float]:
    """Return the seconds that each test took, including its set-up and tear-down."""
    found: dict[str, float] = {}
    for file in sorted(logs.glob("*.xml")):
        for case in ElementTree.parse(file).iter("testcase"):
            parts = case.get("classname", "").split(".")
            classes = [part for part in parts if part[:1].isupper()]
            path = "/".join(parts[: len(parts) - len(classes)])
            name = "::".join([f"{path}.py", *classes, str(case.get("name"))])
            found[name] = found.get(name, 0.0) + float(case.get("time", "0"))
    return found


def longest_first(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])


def write_file_seconds(root: Path) -> None:
    """Write the seconds of each file in the last run, by which the next runs order the files."""
    files: dict[str, float] = {}
    for name, seconds in seconds_of_tests(root / LOGS).items():
        file = name.partition("::")[0]
        files[file] = files.get(file, 0.0) + seconds
    lines = [f"{seconds:.0f} {file}\n" for file, seconds in longest_first(files) if seconds >= 1]
    (root / SECONDS).write_text("".join(lines))


def main(given: Sequence[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="run_tests.py", description=__doc__)
    parser.add_argument("--all", action="store_true", help="exhaustive tests too")
    parser.add_argument("--filter", default="", help="paths of tests, or what pytest -k takes")
    parser.add_argument(
        "--write-seconds", action="store_true", help=f"run nothing; write {SECONDS} of the last run"
    )
    options = parser.parse_args(given)
    if options.write_seconds:
        write_file_seconds(root)
        return 0
    try:
        return Run(root, options.all, options.filter.strip()).run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
