"""The suite of sinks of planned batches passes a sound sink, and finds each planted fault."""

import gc
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pytest

from headgate.connector import (
    ConfigDef,
    ConfigError,
    DataError,
    ExactlyOnceSupport,
    PlannedSinkTask,
    SinkConnector,
    SinkTask,
    Type,
)
from headgate.ports import TopicPartition
from headgate.task.messages import TaskOutcome
from headgate.testing import (
    ConformanceError,
    Message,
    PlannedSinkConformance,
    SinkConformance,
    SinkRun,
    World,
    run_sink,
)

BATCH = 2
Altered: TypeAlias = Mapping[TopicPartition, int | None]


class ChainTask(PlannedSinkTask):
    """Writes each batch as a file named by its first offset, which is made at once and only once.
    The last file of a partition says where the next batch begins."""

    def start(self, config: Mapping[str, str]) -> None:
        self.folder = Path(config["path"])
        self.folder.mkdir(exist_ok=True)

    def run_batch(self) -> int:
        ends = self.context.log.end_offsets(self.context.topics)
        return sum(self.batch(place, end) for place, end in sorted(ends.items()))

    def batch(self, place: TopicPartition, end: int) -> int:
        start = self.position(place)
        if start >= end:
            if self.context.log.committed(self.context.group).get(place, 0) < start:
                self.context.log.commit_unguarded(self.context.group, {place: end})
            return 0
        values = self.values(place, start, min(start + BATCH, end))
        if self.context.stopping:
            return 0
        self.commit(place, start, values)
        return len(values)

    def position(self, place: TopicPartition) -> int:
        files = self.folder.glob(f"{place[0]}-{place[1]}-*.json")
        ends = [int(each.stem.split("-")[2]) + len(json.loads(each.read_text())) for each in files]
        return max(ends, default=0)

    def values(self, place: TopicPartition, start: int, end: int) -> list[str]:
        """What an executor does: it opens the log by what it was given."""
        opener, argument = self.context.log_elsewhere
        module, _, function = opener.partition(":")
        opened = getattr(import_module(module), function)(argument)
        try:
            records = opened.record_log.read(*place, start, end, BATCH)
        finally:
            opened.close()
        if any(record.value is None for record in records):
            raise DataError("a record without a value")
        return [record.value.decode() for record in records]

    def commit(self, place: TopicPartition, start: int, values: Sequence[str]) -> None:
        draft = self.write(values)
        try:
            os.link(draft, self.folder / f"{place[0]}-{place[1]}-{start}.json")
        except FileExistsError:
            return
        finally:
            draft.unlink()
        self.context.log.commit_unguarded(self.context.group, {place: start + len(values)})

    def write(self, values: Sequence[str]) -> Path:
        draft = self.folder / f".draft-{uuid.uuid4().hex}"
        draft.write_text(json.dumps(values))
        return draft


class EarlyTask(ChainTask):
    """Commits the group's offsets before the batch is there."""

    def commit(self, place: TopicPartition, start: int, values: Sequence[str]) -> None:
        self.context.log.commit_unguarded(self.context.group, {place: start + len(values)})
        super().commit(place, start, values)


class FollowsTask(ChainTask):
    """Goes on from the group's offsets: nothing guards a batch."""

    def position(self, place: TopicPartition) -> int:
        return self.context.log.committed(self.context.group).get(place, 0)

    def commit(self, place: TopicPartition, start: int, values: Sequence[str]) -> None:
        self.write(values).rename(self.folder / f"{uuid.uuid4().hex}.json")
        self.context.log.commit_unguarded(self.context.group, {place: start + len(values)})


class ReplacesTask(ChainTask):
    """Marks where it goes on before the batch is there, which a kill in between makes a loss."""

    def position(self, place: TopicPartition) -> int:
        files = self.folder.glob(f"{place[0]}-{place[1]}-*.json")
        return max((int(file.stem.split("-")[2]) + BATCH for file in files), default=0)

    def commit(self, place: TopicPartition, start: int, values: Sequence[str]) -> None:
        target = self.folder / f"{place[0]}-{place[1]}-{start}.json"
        target.write_text("[]")
        self.write(values).replace(target)
        self.context.log.commit_unguarded(self.context.group, {place: start + len(values)})


class SwallowsTask(ChainTask):
    """Takes a record without a value for an empty text."""

    def values(self, place: TopicPartition, start: int, end: int) -> list[str]:
        records = self.context.log.read(*place, start, end, BATCH)
        return [(record.value or b"").decode() for record in records]


class ChainSink(SinkConnector):
    TASK: ClassVar[type[SinkTask] | type[PlannedSinkTask]] = ChainTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("path", Type.STRING)

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.SUPPORTED

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Altered) -> bool:
        """Removes files from the offset on; an empty one is where the next begins."""
        for place, offset in offsets.items():
            for file in cls.files(config, place):
                if cls.start_of(file) < (offset or 0) < cls.end_of(file):
                    raise ConfigError(f"offset {offset} is inside {file.name}")
        for place, offset in offsets.items():
            for file in cls.files(config, place):
                if cls.start_of(file) >= (offset or 0):
                    file.unlink()
            name = f"{place[0]}-{place[1]}-{offset or 0}-begin.json"
            (Path(config["path"]) / name).write_text("[]")
        return False

    @classmethod
    def reached_offsets(
        cls, config: Mapping[str, str], committed: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        ends = {place: max(map(cls.end_of, cls.files(config, place))) for place in committed}
        return {**committed, **ends}

    @staticmethod
    def files(config: Mapping[str, str], place: TopicPartition) -> list[Path]:
        return list(Path(config["path"]).glob(f"{place[0]}-{place[1]}-*.json"))

    @staticmethod
    def start_of(file: Path) -> int:
        return int(file.stem.split("-")[2])

    @classmethod
    def end_of(cls, file: Path) -> int:
        return cls.start_of(file) + len(json.loads(file.read_text()))


class IgnoresSink(ChainSink):
    """Takes any offset, and goes on where its files end."""

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Altered) -> bool:
        return False


class HidesSink(IgnoresSink):
    """Shows the offsets of its group, which its files do not follow."""

    @classmethod
    def reached_offsets(
        cls, config: Mapping[str, str], committed: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        return committed


class ForgetsSink(ChainSink):
    """A fault: the sink removes the marks of what is written, and leaves the files."""

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Altered) -> bool:
        for place in offsets:
            for file in cls.files(config, place):
                file.rename(file.with_name(f"{uuid.uuid4().hex}.json"))
        return super().alter_offsets(config, offsets)


class HalfSink(ChainSink):
    """Refuses when it has removed a file already."""

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Altered) -> bool:
        for place in offsets:
            max(cls.files(config, place), key=cls.end_of).unlink()
        raise ConfigError("no")


class RefusesSink(ChainSink):
    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Altered) -> bool:
        raise ConfigError("offsets are those of the files")


class Chain(PlannedSinkConformance):
    connector: ClassVar[Any] = ChainSink
    exactly_once = True

    def prepare(self, folder: Path) -> Mapping[str, str]:
        return {"path": str(folder / "out")}

    def messages(self) -> Sequence[Message]:
        return [Message(f"text {number}", partition=number % 2) for number in range(6)]

    def written(self, folder: Path) -> list[str]:
        files = (folder / "out").glob("[!.]*.json")
        return [value for file in files for value in json.loads(file.read_text())]

    def bad_message(self) -> Message:
        return Message(None)


class TestASoundSink(Chain):
    pass


class TestASinkThatRefusesOffsets(Chain):
    connector: ClassVar[Any] = RefusesSink


class TestASinkThatFollowsItsGroup(Chain):
    """A sink that follows its group's offsets can promise at least once."""

    connector: ClassVar[Any] = type(
        "FollowsSink",
        (SinkConnector,),
        {"TASK": FollowsTask, "config_def": ChainSink.config_def},
    )
    exactly_once = False


def chain(task: type[PlannedSinkTask], **more: Any) -> Chain:
    connector = type("Planted", (ChainSink,), {"TASK": task})
    suite = type("TestPlanted", (Chain,), {"connector": connector, **more})
    made: Chain = suite()
    return made


def test_offsets_that_are_committed_before_the_batch(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(ConformanceError, match="committed of records that are not written"):
        chain(EarlyTask).test_commits_only_what_is_written(tmp_path)
    with pytest.raises(ConformanceError, match=r"a kill at point .* committed of records that are"):
        chain(EarlyTask).test_survives_a_kill_at_every_point(tmp_path, request)


def test_a_batch_that_nothing_guards(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with pytest.raises(ConformanceError, match=r"(?s)a takeover at point .* doubled: 'text "):
        chain(FollowsTask).test_survives_a_takeover_at_every_point(tmp_path, request)
    with pytest.raises(ConformanceError, match=r"(?s)a new start after a kill .* doubled: 'text "):
        chain(FollowsTask).test_survives_a_kill_at_every_point(tmp_path, request)
    with pytest.raises(ConformanceError, match="doubled: 'text "):
        chain(FollowsTask).test_goes_on_from_every_committed_offset(tmp_path, request)


def test_a_kill_before_a_file_has_its_name(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Only a kill at `os.replace` finds the fault."""
    with pytest.raises(ConformanceError, match=r"(?s)before os.replace\(\):\n  lost: 'text 0'"):
        chain(ReplacesTask).test_survives_a_kill_at_every_point(tmp_path, request)


def test_a_record_that_is_passed_over(tmp_path: Path) -> None:
    with pytest.raises(ConformanceError, match="ended as stopped, expected that it fails"):
        chain(SwallowsTask).test_bad_input_is_not_passed_over(tmp_path)


PASSED = "test_a_record_that_a_user_passes_over"
BACK = "test_offsets_that_a_user_sets_back"


@pytest.mark.parametrize(
    ("connector", "check", "text"),
    [
        (
            IgnoresSink,
            PASSED,
            r"a record passed over:\n  a user is shown topic-0: 2, expected topi",
        ),
        (IgnoresSink, BACK, r"set back by 1:\n  a user is shown topic-0: 3, expected topic-0: 2"),
        (HidesSink, PASSED, r"a record passed over:\n  not expected: 'text 4'"),
        (ForgetsSink, BACK, r"(?s)offsets set back by 1:\n  doubled: 'text "),
        (HalfSink, BACK, r"which alter_offsets refused \(no\):\n  a user is shown topic-0: 2, "),
    ],
)
def test_offsets_of_a_user_that_a_sink_gets_wrong(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    connector: type[ChainSink],
    check: str,
    text: str,
) -> None:
    call = getattr(chain(ChainTask, connector=connector), check)
    with pytest.raises(ConformanceError, match=text):
        call(tmp_path, request) if check == BACK else call(tmp_path)


def test_each_kind_of_sink_has_its_suite(tmp_path: Path) -> None:
    class Wrong(SinkConformance):
        connector = ChainSink

    with pytest.raises(TypeError, match=r"planned batches: its suite is PlannedSinkConformance"):
        Wrong().test_writes_every_record(tmp_path)
    with pytest.raises(TypeError, match=r"no sink of planned batches: its suite is SinkConform"):
        chain(ChainTask, connector="FileStreamSink").test_survives_pauses(tmp_path)


def test_the_points_of_a_run(tmp_path: Path) -> None:
    run = run_sink(ChainSink, {"path": str(tmp_path / "out")}, ["one"])
    assert run.ended.outcome is TaskOutcome.STOPPED
    assert run.committed == {("topic", 0): 1}
    assert run.points[:9] == [
        "before start()",
        "after start()",
        "before run_batch()",
        "before the ends of the log are read",
        "before it asks whether to stop",
        "before os.link()",
        "before os.unlink()",
        "before offsets are committed",
        "after offsets are committed",
    ]


def test_a_task_that_was_killed_changes_no_name(tmp_path: Path) -> None:
    """The task's `finally` would remove the draft, which a killed process leaves."""
    out = tmp_path / "out"
    run = run_sink(ChainSink, {"path": str(out)}, ["one"], kill_at=6)
    assert run.killed and run.points[-1] == "before os.link()"
    (left,) = out.iterdir()
    assert left.name.startswith(".draft-")
    (tmp_path / "x").touch()
    (tmp_path / "x").unlink()  # points end with the run


def test_a_sink_that_does_nothing_is_stopped_soon() -> None:
    class IdleTask(PlannedSinkTask):
        def run_batch(self) -> int:
            calls.append(self)
            return 0

    calls: list[PlannedSinkTask] = []
    run = run_sink(type("Idle", (SinkConnector,), {"TASK": IdleTask}), {}, ["one"])
    assert (run.ended.outcome, run.complete) == (TaskOutcome.STOPPED, False)
    assert len(calls) < 1_000


def test_a_run_inside_of_a_run_passes_points_of_its_own(tmp_path: Path) -> None:
    class TidyTask(ChainTask):
        """Removes a file when it stops, where a run has no points."""

        def stop(self) -> None:
            (self.folder / "tidy").unlink(missing_ok=True)

    def inside(number: int, _name: str) -> None:
        if number == 5:
            others.append(run_sink(connector, config, world=world))

    others: list[SinkRun] = []
    world, connector = World(), type("Tidy", (ChainSink,), {"TASK": TidyTask})
    config = {"path": str(tmp_path / "out")}
    run = run_sink(connector, config, ["one"], world=world, at_point=inside)
    assert [each.complete for each in others] == [True]
    assert others[0].points.count("before os.link()") == 1
    assert run.points[5:7] == ["before os.link()", "before os.unlink()"]


READER = """
import sys
from headgate_runtime.transports.select import open_elsewhere
opened = open_elsewhere(sys.argv[1])
for number in (0, 1):
    for record in opened.record_log.read("topic", number, 0, 9, 9):
        print(number, record.offset, record.key, record.value, record.timestamp_ms)
opened.close()
"""


def test_another_process_reads_the_log(tmp_path: Path) -> None:
    class AsksTask(ChainTask):
        def values(self, place: TopicPartition, start: int, end: int) -> list[str]:
            arguments.append(self.context.log_elsewhere[1])
            return super().values(place, start, end)

    arguments: list[str] = []
    world, connector = World(), type("Asks", (ChainSink,), {"TASK": AsksTask})
    config = {"path": str(tmp_path / "out"), "key.converter": "StringConverter"}
    run_sink(connector, config, [Message("one", key="k", timestamp_ms=7)], world=world)
    more = [Message("two"), Message("three", partition=1)]
    run = run_sink(connector, config, more, world=world)  # a second partition
    assert run.complete
    done = subprocess.run(
        [sys.executable, "-c", READER, arguments[-1]], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "0 0 b'k' b'one' 7",
        "0 1 None b'two' 0",
        "1 0 None b'three' 0",
    ]
    folder = Path(json.loads(arguments[-1])[0]["path"])
    assert folder.is_dir()
    del world
    gc.collect()
    assert not folder.exists()


def test_settings_of_the_worker_reach_the_task(tmp_path: Path) -> None:
    class SettingTask(ChainTask):
        def start(self, config: Mapping[str, str]) -> None:
            super().start(config)
            seen.append(self.context.worker_settings["spark.remote"])

    seen: list[str] = []
    suite = chain(SettingTask, worker_settings={"spark.remote": "sc://here:1"})
    suite.test_writes_every_record(tmp_path)
    assert seen == ["sc://here:1"]


def test_a_suite_of_slow_runs_tries_fewer_points(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    class Counts(Chain):
        points_max = 2

        def _run(self, folder: Path, world: World, **how: Any) -> SinkRun:
            kills.extend([how["kill_at"]] if "kill_at" in how else [])
            return super()._run(folder, world, **how)

    kills: list[int] = []
    Counts().test_survives_a_kill_at_every_point(tmp_path, request)
    assert len(kills) == 2 and kills[0] == 1 < kills[1]
