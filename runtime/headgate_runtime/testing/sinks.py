"""The conformance suite of sinks: each thing that a worker may do to a task, done at every
point."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from headgate.connector.api import Connector, ExactlyOnceSupport, SinkConnector, Value
from headgate.connector.sink_names import sink_group
from headgate.task.messages import TaskOutcome
from headgate_runtime.testing.compare import fail, missing_values, same_values
from headgate_runtime.testing.config_check import config_problems
from headgate_runtime.testing.job import (
    NAME,
    NO_SETTINGS,
    full_config,
    is_planned,
    sink_class,
)
from headgate_runtime.testing.messages import Message
from headgate_runtime.testing.runs import SinkRun, delivered, run_sink
from headgate_runtime.testing.some import DEFAULT, some
from headgate_runtime.testing.sources import never, new_folder, skip
from headgate_runtime.testing.world import World

BATCH = 3
"""Records that `put` is given at once."""
TEXTS = 12


class SinkChecks:
    """The common part of the suites of sinks. A subclass adds the checks of its kind of sink."""

    _planned: ClassVar[bool] = False
    """Whether the suite is for sinks of planned batches."""
    _work: ClassVar[str] = "put"
    """The task's method that handles records."""

    connector: ClassVar[type[Connector] | str]
    """The connector's class, or a value of ``connector.class``."""
    config: ClassVar[Mapping[str, str]] = {}
    exactly_once: ClassVar[bool] = False
    """Whether the sink promises exactly-once. False: at least once, so a record may be written
    twice after a kill and after a rebalance."""
    worker_settings: Mapping[str, str] = NO_SETTINGS
    """Settings of the worker that the connector reads, such as ``spark.remote``."""
    points_max: ClassVar[int] = DEFAULT
    """Most points and offsets that each check tries, unless ``--connector-points`` says otherwise.
    Lower it for slow runs."""

    def prepare(self, folder: Path) -> Mapping[str, str]:
        """Prepare the outside in a new, empty folder. Return the keys to add to `config`."""
        return {}

    def messages(self) -> Sequence[Message | Value]:
        """Return the messages in the log: 12 texts in two partitions, unless overridden."""
        return [Message(f"text {number}", partition=number % 2) for number in range(TEXTS)]

    def written(self, folder: Path) -> Sequence[object]:
        """Return what is outside now, in any order. Nothing is there before the first record.

        Read it as another process would: a file anew from the disk, a table by another connection.
        """
        # Not abstract: pytest would explain a missing method less well.
        raise NotImplementedError("written(folder): return what the sink has written by now")

    def expected(self, message: Message) -> object:
        """Return what `written` shows for a message: its value, unless overridden."""
        return message.value

    def bad_message(self) -> Message | None:
        """Return a message that the sink cannot write. None: it can write all."""
        return None

    # -- checks --

    def test_refuses_a_wrong_config_by_its_key(self, tmp_path: Path) -> None:
        """A missing required key, and a number with an invalid value, are errors of that key."""
        __tracebackhide__ = True
        found = self._found
        config = full_config(
            found, {"topics": "topic", **self._config(new_folder(tmp_path, "out"))}
        )
        problems = config_problems(found, config, self.worker_settings)
        fail(f"configs of {found.__name__}", problems)

    def test_declares_what_it_promises(self, tmp_path: Path) -> None:
        """The connector's `exactly_once_support` agrees with `exactly_once` of the suite."""
        __tracebackhide__ = True
        found = self._found
        config = full_config(
            found, {"topics": "topic", **self._config(new_folder(tmp_path, "out"))}
        )
        declared = found.exactly_once_support(config)
        if (declared is ExactlyOnceSupport.SUPPORTED) is self.exactly_once:
            return
        said = "nothing" if declared is None else declared.value
        seen = f"{found.__name__}.exactly_once_support(config) says {said}"
        if self.exactly_once:
            advice = "expected SUPPORTED: else users are told that a record may be written twice"
        else:
            advice = "so let the suite say exactly_once = True, or expect it to say UNSUPPORTED"
        fail(
            "what the sink promises", [f"{seen}, and exactly_once is {self.exactly_once}: {advice}"]
        )

    def test_writes_every_record(self, tmp_path: Path) -> None:
        """A run from the beginning writes each record once, and commits all offsets."""
        __tracebackhide__ = True
        folder = new_folder(tmp_path, "out")
        run = self._run(folder, World(), first=True)
        self._check("a run from the beginning", run, folder, exact=True)

    def test_commits_only_what_is_written(self, tmp_path: Path) -> None:
        """Each time offsets are committed, every record before them is outside.

        A process that is killed then loses its memory. So records must be written when `flush` has
        returned, or `pre_commit` has named their offsets.
        """
        __tracebackhide__ = True
        folder, world = new_folder(tmp_path, "out"), World()
        problems: list[str] = []
        commits: list[int] = []

        def look(number: int, name: str) -> None:
            if name == "after offsets are committed":
                commits.append(number)
            if name == "after offsets are committed" and not problems:
                committed = self._committed(world)
                problems.extend(missing_values(self._pairs(committed), self.written(folder)))
                if problems:
                    problems.append(f"committed by then: {_shown(committed)}")

        self._run(folder, world, first=True, at_point=look)
        fail("offsets were committed of records that are not written", problems)
        fail("commits of offsets", never("asked for what it has written", len(commits)))

    def test_survives_a_stop_at_every_point(self, tmp_path: Path, request: Any) -> None:
        """The task is told to stop, and starts again: nothing is lost, and nothing doubled."""
        __tracebackhide__ = True
        self._at_every_point(tmp_path, request, "stop_at", "a stop", exact=True)

    def test_survives_a_kill_at_every_point(self, tmp_path: Path, request: Any) -> None:
        """The task's process is killed, and the task starts again on the same log."""
        __tracebackhide__ = True
        self._at_every_point(tmp_path, request, "kill_at", "a kill", exact=self.exactly_once)

    def test_goes_on_from_every_committed_offset(self, tmp_path: Path, request: Any) -> None:
        """The group's offsets are set back, as a user may do. All records after them are then
        written."""
        __tracebackhide__ = True
        count = len(self._log())
        for back in some(range(1, count + 1), request, self.points_max):
            folder, world = new_folder(tmp_path, f"back-{back}"), World()
            self._run(folder, world, first=True)
            committed = world.log.committed.setdefault(self._group, {})
            for place in list(committed)[:1] if back < count else list(committed):
                committed[place] = max(0, committed[place] - back)
            run = self._run(folder, world)
            where = f"a start from offsets that were set back by {back}"
            self._check(where, run, folder, exact=self.exactly_once)

    def test_offsets_that_a_user_sets_back(self, tmp_path: Path, request: Any) -> None:
        """A user sets offsets back by `alter_offsets`, up to a reset, and all records are written
        afterwards. A connector may refuse. Then nothing has changed."""
        __tracebackhide__ = True
        count = len(self._log())
        for back in some(range(1, count + 1), request, self.points_max):
            folder, world = new_folder(tmp_path, f"alter-{back}"), World()
            self._run(folder, world, first=True)
            reached = self._reached(folder, world)
            changes: dict[tuple[str, int], int | None] = dict.fromkeys(reached)
            if back < count:
                changes = {place: max(0, at - back) for place, at in sorted(reached.items())[:1]}
            where, _ = self._alter(f"offsets set back by {back}", folder, world, changes)
            self._check(where, self._run(folder, world), folder, exact=self.exactly_once)

    def test_a_record_that_a_user_passes_over(self, tmp_path: Path) -> None:
        """Half of the log is written, and `alter_offsets` passes over the next record. That record
        is not written, and all others are. A connector may refuse. Then the record is written,
        too."""
        __tracebackhide__ = True
        folder, world = new_folder(tmp_path, "passed"), World()
        messages = self.messages()
        half = (len(messages) + 1) // 2
        self._run(folder, world, messages=messages[:half])
        self._run(folder, world, messages=messages[half:], kill_at=1)  # these are in the log only
        reached = self._reached(folder, world)
        left = (
            place for place, at in reached.items() if at < len(world.log.topics[place[0]][place[1]])
        )
        passed = next(left, None)
        if passed is None:
            skip("messages() are too few: after half of them no partition has more")
            return
        at = reached[passed]
        where, done = self._alter("a record passed over", folder, world, {passed: at + 1})
        run, gone = self._run(folder, world), (*passed, at) if done else None
        self._check(where, run, folder, exact=self.exactly_once, gone=gone)

    def test_survives_pauses(self, tmp_path: Path) -> None:
        """The connector is paused after each batch, and resumed."""
        __tracebackhide__ = True
        folder = new_folder(tmp_path, "pauses")
        run = self._run(folder, World(), first=True, pause_at=f"after {self._work}()")
        where = f"a run with {run.pauses} pauses"
        self._check(where, run, folder, exact=True)
        fail(where, never("paused", run.pauses))

    def test_bad_input_is_not_passed_over(self, tmp_path: Path) -> None:
        """A record that cannot be written fails the task, and no offset after it is committed."""
        __tracebackhide__ = True
        bad = self.bad_message()
        if bad is None:
            skip("bad_message() names none: the sink says that it can write every record")
            return
        folder, world = new_folder(tmp_path, "bad"), World()
        messages = [*self.messages(), bad]
        run = run_sink(
            self.connector,
            self._config(folder),
            messages,
            batch=BATCH,
            worker_settings=self.worker_settings,
            world=world,
        )
        where, place = "a record that cannot be written", (bad.topic, bad.partition)
        if run.ended.outcome is not TaskOutcome.FAILED:
            fail(where, [f"the task ended as {run.ended.outcome}, expected that it fails"])
        at = len(world.log.topics[bad.topic][bad.partition]) - 1
        if run.committed.get(place, 0) > at:
            fail(where, [f"offset {at + 1} of {place[0]}-{place[1]} was committed behind it"])

    # -- what they share --

    @property
    def _found(self) -> type[SinkConnector]:
        """The connector's class.

        Raises:
            TypeError: it is no sink, or one of the other kind.
        """
        found = sink_class(self.connector)
        if is_planned(found) is not self._planned:
            kind = (
                "a sink of planned batches" if not self._planned else "no sink of planned batches"
            )
            suite = "SinkConformance" if self._planned else "PlannedSinkConformance"
            raise TypeError(f"{found.__name__} is {kind}: its suite is {suite}")
        return found

    def _config(self, folder: Path) -> dict[str, str]:
        return {**self.config, **self.prepare(folder)}

    @property
    def _group(self) -> str:
        return sink_group(NAME, self.config)

    def _committed(self, world: World) -> dict[tuple[str, int], int]:
        return world.log.committed.get(self._group, {})

    def _reached(self, folder: Path, world: World) -> dict[tuple[str, int], int]:
        """Return the sink's offsets as a user sees them."""
        config = self._full(folder, world)
        return dict(self._found.reached_offsets(config, dict(self._committed(world))))

    def _alter(
        self,
        where: str,
        folder: Path,
        world: World,
        changes: Mapping[tuple[str, int], int | None],
    ) -> tuple[str, bool]:
        """Alter offsets as a worker does for a user. Return where that was, and whether it was
        done."""
        __tracebackhide__ = True
        wanted, done = self._reached(folder, world), True
        try:
            self._found.alter_offsets(self._full(folder, world), changes)
        except Exception as refused:
            where = f"{where}, which alter_offsets refused ({refused})"
            done = False
        else:
            world.log.set_committed(self._group, changes)
            wanted |= {place: at or 0 for place, at in changes.items()}
        after = self._reached(folder, world)
        if wrong := {place: at for place, at in wanted.items() if after.get(place, 0) != at}:
            seen = _shown({place: after.get(place, 0) for place in wrong})
            fail(where, [f"a user is shown {seen}, expected {_shown(wrong)}: see reached_offsets"])
        return where, done

    def _full(self, folder: Path, world: World) -> dict[str, str]:
        topics = ",".join(world.log.topics)
        return full_config(self._found, {"topics": topics, **self._made(folder)})

    def _made(self, folder: Path) -> dict[str, str]:
        configs: dict[Path, dict[str, str]] = self.__dict__.setdefault("_configs", {})
        if folder not in configs:
            configs[folder] = self._config(folder)
        return configs[folder]

    def _run(
        self,
        folder: Path,
        world: World,
        *,
        first: bool = False,
        messages: Sequence[Message | Value] = (),
        **how: Any,
    ) -> SinkRun:
        return run_sink(
            self._found,
            self._made(folder),
            self.messages() if first else messages,
            batch=BATCH,
            worker_settings=self.worker_settings,
            world=world,
            **how,
        )

    def _log(self) -> list[Message]:
        """Return the messages with their offsets, as the sink is given them."""
        return delivered(self.config, self.messages(), self.worker_settings)

    def _pairs(
        self,
        before: Mapping[tuple[str, int], int] | None = None,
        gone: tuple[str, int, int] | None = None,
    ) -> list[tuple[object, str]]:
        """Return what should be outside, each with its record. With `before`, only records before
        these offsets count. `gone` is topic, partition and offset of a record that should not be
        there."""
        return [
            (self.expected(each), each.shown)
            for each in self._log()
            if before is None or each.offset < before.get((each.topic, each.partition), 0)
            if (each.topic, each.partition, each.offset) != gone
        ]

    def _check(
        self,
        where: str,
        run: SinkRun,
        folder: Path,
        *,
        exact: bool,
        gone: tuple[str, int, int] | None = None,
    ) -> None:
        __tracebackhide__ = True
        if run.ended.outcome is not TaskOutcome.STOPPED:
            trace = f"\n{run.ended.trace}" if run.ended.trace else ""
            fail(where, [f"the task ended as {run.ended.outcome}: {run.ended.reason}{trace}"])
        fail(where, self._written_wrong(folder, exact=exact, gone=gone))
        # A sink that goes on from a record of its own does not read again what it has written. The
        # group's offsets follow with the next record.
        if not (run.complete or self.exactly_once):
            committed = f"it committed {_shown(run.committed)}"
            fail(where, [f"all is written, but not all offsets are committed: {committed}"])

    def _written_wrong(
        self, folder: Path, *, exact: bool, gone: tuple[str, int, int] | None = None
    ) -> list[str]:
        wanted = self._pairs(gone=gone)
        return same_values(wanted, self.written(folder), may_double=not exact)

    def _at_every_point(
        self, tmp_path: Path, request: Any, how: str, what: str, *, exact: bool
    ) -> None:
        __tracebackhide__ = True
        names = self._run(new_folder(tmp_path, f"{how}-points"), World(), first=True).points
        hit = 0
        for number in some(range(1, len(names) + 1), request, self.points_max):
            folder, world = new_folder(tmp_path, f"{how}-{number}"), World()
            at: dict[str, Any] = {how: number}
            first = self._run(folder, world, first=True, **at)
            hit += len(first.points) >= number
            where = f"{what} at point {number}, {names[number - 1]}"
            lost = missing_values(self._pairs(self._committed(world)), self.written(folder))
            fail(f"{where}: offsets were committed of records that are not written", lost)
            run = self._run(folder, world)
            self._check(f"a new start after {where}", run, folder, exact=exact)
            world.bury()
        fail(what, never("run to such a point", hit))


class SinkConformance(SinkChecks):
    """Checks of a sink. A subclass whose name begins with ``Test`` names the connector::

    class TestMySink(SinkConformance):
        connector = MySink

        def prepare(self, folder):
            return {"file": str(folder / "out.txt")}

        def written(self, folder):
            return (folder / "out.txt").read_text().splitlines()

    """

    def test_survives_a_rebalance_at_every_point(self, tmp_path: Path, request: Any) -> None:
        """Partitions are taken from the task, and come back a second later."""
        __tracebackhide__ = True
        names, hit = self._run(new_folder(tmp_path, "points"), World(), first=True).points, 0
        for number in some(range(1, len(names) + 1), request, self.points_max):
            folder = new_folder(tmp_path, f"rebalance-{number}")
            run = self._run(folder, World(), first=True, rebalance_at=number)
            hit += run.rebalances
            where = f"a rebalance from point {number}, {names[number - 1]}, on"
            self._check(where, run, folder, exact=self.exactly_once)
        fail("rebalances", never("in a rebalance", hit))


def _shown(committed: Mapping[tuple[str, int], int]) -> str:
    texts = [f"{topic}-{number}: {end}" for (topic, number), end in sorted(committed.items())]
    return ", ".join(texts) or "nothing"
