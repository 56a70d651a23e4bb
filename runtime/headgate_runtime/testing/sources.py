"""The conformance suite of sources: each thing that a worker may do to a task, done at every
point."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from headgate.connector.api import Connector, Partition, Value
from headgate.connector.error_handling import LETTERS_REPLICAS, LETTERS_TOPIC, TOLERANCE
from headgate.task.messages import TaskOutcome
from headgate_runtime.testing.compare import fail, same_messages, same_values
from headgate_runtime.testing.config_check import config_problems
from headgate_runtime.testing.job import NO_SETTINGS, full_config, source_class
from headgate_runtime.testing.messages import Message
from headgate_runtime.testing.points import runs_at
from headgate_runtime.testing.runs import SourceRun, run_source
from headgate_runtime.testing.some import DEFAULT, some
from headgate_runtime.testing.world import World

WITH_LETTERS = {TOLERANCE: "all", LETTERS_TOPIC: "dead-letters", LETTERS_REPLICAS: "1"}


class SourceConformance:
    """Checks of a source. A subclass whose name begins with ``Test`` names the connector::

        class TestMySource(SourceConformance):
            connector = MySource
            config = {"topic": "t"}

            def prepare(self, folder):
                (folder / "in.txt").write_text("a\\nb\\n")
                return {"file": str(folder / "in.txt")}

            def expected(self):
                return ["a", "b"]

    The input must be the same each time it is prepared. Three records or more find more than one.
    """

    connector: ClassVar[type[Connector] | str]
    """The connector's class, or a value of ``connector.class``."""
    config: ClassVar[Mapping[str, str]] = {}
    exactly_once: ClassVar[bool] = True
    """Whether the source promises exactly-once. False: at least once, so a record may come twice
    after a kill."""
    max_records: ClassVar[int | None] = None
    """Number of records that the runs read. For a source that never runs dry."""
    worker_settings: Mapping[str, str] = NO_SETTINGS
    """Settings of the worker that the connector reads, such as ``spark.remote``."""
    points_max: ClassVar[int] = DEFAULT
    """Most points and offsets that each check tries, unless ``--connector-points`` says otherwise.
    Lower it for slow runs."""

    def prepare(self, folder: Path) -> Mapping[str, str]:
        """Make the input in a new, empty folder. Return the keys to add to `config`."""
        return {}

    def expected(self) -> Sequence[Value] | None:
        """Return all values, in any order, as a sink would be given them. None: whatever a run
        reads."""
        return None

    def bad_input(self, folder: Path) -> Mapping[str, str] | None:
        """Prepare input as `prepare` does, with one more record, or a file, that cannot be read.
        None: there is no bad input."""
        return None

    # -- checks --

    def test_refuses_a_wrong_config_by_its_key(self, tmp_path: Path) -> None:
        """A missing required key, and a number with an invalid value, are errors of that key."""
        __tracebackhide__ = True
        found = source_class(self.connector)
        config = full_config(found, self._config(new_folder(tmp_path, "input")))
        problems = config_problems(found, config, self.worker_settings)
        fail(f"configs of {found.__name__}", problems)

    def test_reads_what_is_expected(self, tmp_path: Path) -> None:
        """A run from the beginning reads all and ends idle, and a second one reads the same."""
        __tracebackhide__ = True
        folder = new_folder(tmp_path, "input")
        clean = self._clean(folder)
        expected = self.expected()
        if expected is not None:
            pairs = [(value, f"{value!r}, which expected() names") for value in expected]
            values = [each.value for each in clean.messages]
            fail("a run from the beginning", same_values(pairs, values))
        other = new_folder(tmp_path, "again")
        again = self._clean(other)
        where = "a second run from the beginning"
        fail(where, same_messages(clean.messages, again.messages, tmp_path))

    def test_goes_on_from_every_offset(self, tmp_path: Path, request: Any) -> None:
        """A start at the source offset of any record reads exactly the records after it."""
        __tracebackhide__ = True
        folder = new_folder(tmp_path, "input")
        clean = self._clean(folder)
        for count in some(range(1, len(clean.messages) + 1), request, self.points_max):
            last = clean.messages[count - 1]
            offsets = _offsets(clean.messages[:count])
            run = self._run(folder, offsets=offsets)
            where = f"a start after record {count}, {last.shown}"
            fail(where, _ending(run, must_be_idle=self.max_records is None))
            rest = clean.messages[count:]
            fail(where, same_messages(rest, run.messages[: self._left(count)], tmp_path))

    def test_survives_a_kill_at_every_point(self, tmp_path: Path, request: Any) -> None:
        """The task's process is killed, and the task starts again on the same log."""
        __tracebackhide__ = True
        self._at_every_point(tmp_path, request, "kill_at", "a kill", exact=self.exactly_once)

    def test_survives_a_stop_at_every_point(self, tmp_path: Path, request: Any) -> None:
        """The task is told to stop, finishes open work, and starts again."""
        __tracebackhide__ = True
        self._at_every_point(tmp_path, request, "stop_at", "a stop", exact=True)

    def test_survives_a_takeover_at_every_point(self, tmp_path: Path, request: Any) -> None:
        """Another worker starts the task while the first run hangs, and then the first goes on.

        The first run is fenced by then (KIP-618), so this needs exactly-once.
        """
        __tracebackhide__ = True
        if not self.exactly_once:
            skip("the source promises at least once, so nothing shuts out a run that hung")
        expected, taken = self._expected(tmp_path), 0
        for number, name, folder in self._points(tmp_path, request, "takeover"):
            world = World()
            take_over, others = runs_at(number, partial(self._run, folder, world=world))
            first = self._run(folder, world=world, at_point=take_over)
            where = f"a takeover at point {number}, {name}"
            taken += len(others)
            fail(where, [line for run in others for line in _ending(run, must_be_idle=False)])
            if first.ended.outcome not in (TaskOutcome.FENCED, TaskOutcome.STOPPED):
                fail(where, [f"the run that hung ended as {first.ended.reason}, expected FENCED"])
            fail(where, same_messages(expected, first.messages[: self.max_records], tmp_path))
        fail("takeovers", never("taken over", taken))

    def test_survives_pauses(self, tmp_path: Path) -> None:
        """The connector is paused after each poll, and resumed."""
        __tracebackhide__ = True
        expected = self._expected(tmp_path)
        folder = new_folder(tmp_path, "pauses")
        run = self._run(folder, pause_at="after poll()")
        where = f"a run with {run.pauses} pauses"
        fail(where, _ending(run, must_be_idle=False) or never("paused", run.pauses))
        fail(where, same_messages(expected, run.messages[: self.max_records], tmp_path))

    def test_bad_input_costs_itself_alone(self, tmp_path: Path) -> None:
        """``errors.tolerance`` = none fails the task, or quarantines the input with a reason; all
        reads the rest."""
        __tracebackhide__ = True
        folder = new_folder(tmp_path, "bad")
        bad = self.bad_input(folder)
        if bad is None:
            skip("bad_input() names none: the source says that it has no bad input")
        config = {**self.config, **(bad or {})}
        expected = self._expected(tmp_path)
        with_settings: dict[str, Any] = {"worker_settings": self.worker_settings}
        none = run_source(self.connector, {**config, "errors.tolerance": "none"}, **with_settings)
        if none.ended.outcome is not TaskOutcome.FAILED and not none.quarantined:
            told = "expected that the task fails, or sets its input aside with `quarantine`"
            fail("bad input with errors.tolerance=none", [f"nothing was said of it: {told}"])
        run = run_source(self.connector, {**config, "errors.tolerance": "all"}, **with_settings)
        where = "bad input with errors.tolerance=all"
        fail(where, _ending(run, must_be_idle=True))
        if not (run.skipped or run.quarantined):
            told = "expected a SkippedRecord in its place, or `quarantine`"
            fail(where, [f"nothing was said of it: {told}"])
        values = [(each.value, each.shown) for each in expected]
        fail(where, same_values(values, [each.value for each in run.messages]))

    def test_bad_input_is_one_dead_letter(self, tmp_path: Path, request: Any) -> None:
        """With a dead letter queue, bad input is in it once, even after a kill at every point. All
        runs read one folder, because letters have offsets, and these may have names of files."""
        __tracebackhide__ = True
        folder = self._bad_folder(tmp_path, "letters")
        clean, where = self._run(folder, max_records=None), "bad input with a dead letter queue"
        fail(where, _ending(clean, must_be_idle=True))
        if not (clean.letters or clean.quarantined):
            told = "expected a dead letter of a SkippedRecord, or `quarantine`"
            fail(where, [f"nothing was said of it: {told}"])
        expected = [(each.value, each.shown) for each in self._expected(tmp_path)]
        fail(where, same_values(expected, [each.value for each in clean.messages]))
        hit, may_double = 0, not self.exactly_once
        for number in some(range(1, len(clean.points) + 1), request, self.points_max):
            world = World()
            first = self._run(folder, world=world, max_records=None, kill_at=number)
            hit += len(first.points) >= number
            run = self._run(folder, world=world, max_records=None)
            where = f"a new start after a kill at point {number}, {clean.points[number - 1]}"
            fail(where, _ending(run, must_be_idle=True))
            for what, wanted, got in (
                (where, clean.messages, run.messages),
                (f"dead letters of {where}", clean.letters, run.letters),
            ):
                fail(what, same_messages(wanted, got, tmp_path, may_double=may_double))
            world.bury()
        fail("a kill", never("run to such a point", hit))

    # -- what they share --

    def _bad_folder(self, tmp_path: Path, name: str) -> Path:
        """Return a folder with bad input, whose runs have a dead letter queue."""
        folder = new_folder(tmp_path, name)
        bad = self.bad_input(folder)
        if bad is None:
            skip("bad_input() names none: the source says that it has no bad input")
        self._configs[folder] = {**self.config, **(bad or {}), **WITH_LETTERS}
        return folder

    def _config(self, folder: Path) -> dict[str, str]:
        return {**self.config, **self.prepare(folder)}

    def _run(self, folder: Path, **how: Any) -> SourceRun:
        """Run the source on the input of `folder`, which is made if it is empty."""
        config = self._configs.get(folder)
        if config is None:
            config = self._configs[folder] = self._config(folder)
        most = how.pop("max_records", self.max_records)
        return run_source(
            self.connector,
            config,
            exactly_once=self.exactly_once,
            max_records=most,
            worker_settings=self.worker_settings,
            **how,
        )

    @property
    def _configs(self) -> dict[Path, dict[str, str]]:
        found: dict[Path, dict[str, str]] = self.__dict__.setdefault("_made", {})
        return found

    def _clean(self, folder: Path) -> SourceRun:
        __tracebackhide__ = True
        run = self._run(folder)
        where = "a run from the beginning"
        fail(where, _ending(run, must_be_idle=self.max_records is None))
        if not run.messages:
            fail(where, ["it read no record, expected one at least: is the input prepared?"])
        run.messages = run.messages[: self.max_records]
        return run

    def _expected(self, tmp_path: Path) -> list[Message]:
        """Return what a run from the beginning reads."""
        return self._clean(new_folder(tmp_path, "clean")).messages

    def _left(self, count: int) -> int | None:
        return None if self.max_records is None else self.max_records - count

    def _points(self, tmp_path: Path, request: Any, what: str) -> Iterator[tuple[int, str, Path]]:
        """Yield the points of a run from the beginning: number, name, and a folder for each."""
        names = self._run(new_folder(tmp_path, f"{what}-points")).points
        for number in some(range(1, len(names) + 1), request, self.points_max):
            yield number, names[number - 1], new_folder(tmp_path, f"{what}-{number}")

    def _at_every_point(
        self, tmp_path: Path, request: Any, how: str, what: str, *, exact: bool
    ) -> None:
        __tracebackhide__ = True
        expected, hit = self._expected(tmp_path), 0
        for number, name, folder in self._points(tmp_path, request, how):
            world = World()
            first = self._run(folder, world=world, **{how: number})
            hit += len(first.points) >= number
            run = self._run(folder, world=world)
            where = f"a new start after {what} at point {number}, {name}"
            fail(where, _ending(run, must_be_idle=self.max_records is None))
            got = run.messages[: self.max_records]
            fail(where, same_messages(expected, got, tmp_path, may_double=not exact))
            world.bury()
        fail(what, never("run to such a point", hit))


def never(what: str, times: int) -> list[str]:
    """Return a problem if a check has tried nothing, since it then shows nothing."""
    return [] if times else [f"the task was never {what}, so nothing was tried"]


def new_folder(tmp_path: Path, name: str) -> Path:
    """Make a folder for the input or the output of one run."""
    folder = tmp_path / name
    folder.mkdir()
    return folder


def skip(reason: str) -> None:
    """Skip the check that is under way, and say why."""
    import pytest  # pytest is no dependency of Headgate

    pytest.skip(reason)


def _offsets(messages: Sequence[Message]) -> list[tuple[Partition, Partition]]:
    """Return the last source offset of each source partition."""
    last: dict[str, tuple[Partition, Partition]] = {}
    for each in messages:
        partition, offset = each.source_partition or {}, each.source_offset or {}
        last[repr(sorted(partition.items()))] = (partition, offset)
    return list(last.values())


def _ending(run: SourceRun, *, must_be_idle: bool) -> list[str]:
    if run.ended.outcome is not TaskOutcome.STOPPED:
        trace = f"\n{run.ended.trace}" if run.ended.trace else ""
        return [f"the task ended as {run.ended.outcome}: {run.ended.reason}{trace}"]
    if must_be_idle and not run.idle:
        return ["the task never said that nothing was left to read: `poll` found something always"]
    return []
