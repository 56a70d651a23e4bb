"""`run_source`, `run_sink` and the contexts, as an author of a connector uses them."""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from headgate.connector import (
    RetriableError,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceConnector,
    SourceRecord,
    SourceTask,
    SourceTaskContext,
)
from headgate.connector.api import ConnectorContext, SinkTaskContext
from headgate.task.messages import TaskOutcome
from headgate.testing import (
    ConfigRefusedError,
    FakeConnectorContext,
    FakeSinkContext,
    FakeSourceContext,
    Message,
    Raw,
    World,
    run_sink,
    run_source,
)
from headgate_connectors.file_stream import FileStreamSourceTask
from headgate_runtime.testing.points import Killed, Points


class SlowTask(SourceTask):
    """Waits ten minutes before each record, and refuses every other poll."""

    def start(self, config: Mapping[str, str]) -> None:
        committed = self.context.offsets.offset({"p": 1})
        self.next = 0 if committed is None else committed["n"]
        self.refused = False

    def poll(self) -> Sequence[SourceRecord] | None:
        if self.next == 3:
            return None
        self.refused = not self.refused
        if self.refused:
            raise RetriableError("not yet")
        self.context.wait(600)
        self.next += 1
        return [SourceRecord({"p": 1}, {"n": self.next}, "t", {"n": self.next})]


class SlowSource(SourceConnector):
    TASK: ClassVar[type[SourceTask]] = SlowTask

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{}]


class EndlessTask(SlowTask):
    def poll(self) -> Sequence[SourceRecord]:
        self.next += 1
        return [SourceRecord({"p": 1}, {"n": self.next}, "t", "again")]


class EndlessSource(SlowSource):
    TASK: ClassVar[type[SourceTask]] = EndlessTask


class ListTask(SinkTask):
    given: ClassVar[list[SinkRecord]] = []

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.given.extend(records)


class ListSink(SinkConnector):
    TASK = ListTask

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{}]


def test_waiting_takes_no_time() -> None:
    began = time.monotonic()
    run = run_source(SlowSource, {"value.converter": "JsonConverter"})
    assert time.monotonic() - began < 5
    assert [each.value for each in run.messages] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert [each.source_offset for each in run.messages] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert (run.idle, run.ended.outcome) == (True, TaskOutcome.STOPPED)


def test_a_source_begins_at_the_offsets_it_is_given() -> None:
    run = run_source(SlowSource, {}, offsets=[({"p": 1}, {"n": 2})])
    assert [each.source_offset for each in run.messages] == [{"n": 3}]
    assert run.offsets == [({"p": 1}, {"n": 3})]


def test_a_source_without_an_end_is_ended() -> None:
    run = run_source(EndlessSource, {}, max_records=5)
    assert len(run.messages) == 5
    assert not run.idle


def test_transforms_are_applied_and_offsets_stay(tmp_path: Path) -> None:
    config = {
        "transforms": "route",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": "t",
        "transforms.route.replacement": "other",
    }
    run = run_source(SlowSource, config)
    assert {each.topic for each in run.messages} == {"other"}
    assert [each.source_offset for each in run.messages] == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_kill_is_told_with_its_point() -> None:
    world = World()
    run = run_source(SlowSource, {}, world=world, kill_at=3)
    assert run.killed
    assert run.ended.reason == f"killed at point 3, {run.points[2]}"
    again = run_source(SlowSource, {}, world=world)
    assert [each.source_offset for each in again.messages] == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_at_least_once_too() -> None:
    world = World()
    run_source(SlowSource, {}, world=world, exactly_once=False)
    run = run_source(SlowSource, {}, world=world, exactly_once=False)
    assert len(run.messages) == 3
    assert run.offsets == [({"p": 1}, {"n": 3})]


def test_a_sink_is_given_the_messages() -> None:
    ListTask.given.clear()
    message = Message("b", key="k", topic="u", partition=1, headers=(("h", "v"),), timestamp_ms=7)
    run = run_sink(ListSink, {}, ["a", message])
    one, two = ListTask.given
    assert (one.topic, one.partition, one.offset, one.value) == ("topic", 0, 0, "a")
    assert (two.topic, two.partition, two.key, two.value) == ("u", 1, "k", "b")
    assert (two.headers, two.timestamp_ms) == ((("h", "v"),), 7)
    assert run.committed == {("topic", 0): 1, ("u", 1): 1}
    assert run.complete


def test_a_killed_sink_stays_in_its_group_until_its_session_ends() -> None:
    world = World()
    config: Mapping[str, str] = {}
    assert run_sink(ListSink, config, ["a"], world=world, kill_at=6).killed
    killed_ms = world.now_ms()
    assert run_sink(ListSink, config, world=world).complete
    assert world.now_ms() - killed_ms >= 9_000
    stopped_ms = world.now_ms()
    assert run_sink(ListSink, config, ["b"], world=world).complete
    assert world.now_ms() - stopped_ms < 3_000


def test_a_source_and_a_sink_on_one_log() -> None:
    world = World()
    ListTask.given.clear()
    run_source(SlowSource, {}, world=world)
    sink = run_sink(ListSink, {}, [Message("more", topic="u")], world=world)
    assert sink.committed == {("t", 0): 3, ("u", 0): 1}
    assert [record.value for record in ListTask.given if record.topic == "u"] == ["more"]
    run = run_source(SlowSource, {}, world=world)
    assert [each.source_offset for each in run.messages] == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_run_that_was_killed_passes_no_point_any_more() -> None:
    points = Points(2)
    points.pass_by("one")
    for _ in range(2):
        with pytest.raises(Killed):
            points.pass_by("two")
    assert points.passed == ["one", "two"]


def test_a_source_is_paused_while_it_gets_on(tmp_path: Path) -> None:
    """The source looks for more after its last record, and is idle once it is left alone."""
    file = tmp_path / "in.txt"
    file.write_text("one\ntwo\nthree\n")
    config = {"topic": "t", "file": str(file), "batch.size": "1"}
    run = run_source("FileStreamSource", config, pause_at="after poll()")
    assert [message.value for message in run.messages] == ["one", "two", "three"]
    assert run.idle and 3 <= run.pauses < 20


def test_bytes_that_no_converter_wrote() -> None:
    config = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
    run = run_sink(ListSink, config, [{"n": 1}, Raw(b"{no json")])
    assert run.ended.outcome is TaskOutcome.FAILED
    assert "topic-0, offset 1" in run.ended.reason
    run = run_sink(ListSink, {**config, "errors.tolerance": "all"}, [{"n": 1}, Raw(b"{no json")])
    assert (run.skipped, run.complete) == (1, True)


def test_a_sink_has_a_dead_letter_queue(tmp_path: Path) -> None:
    config = {
        "file": str(tmp_path / "out.txt"),
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
    }
    world = World()
    for _ in range(2):  # the second run does not read its letters
        messages = ["one", Message(Raw(b"{no"))]
        run = run_sink("FileStreamSink", config, messages, world=world)
        assert run.ended.outcome is TaskOutcome.STOPPED, run.ended.trace
        assert (run.complete, run.skipped) == (True, 1)
    assert (tmp_path / "out.txt").read_text().splitlines() == ["one", "one"]
    (letters,) = world.log.topics["letters"]
    assert [letter.value for letter in letters] == [b"{no", b"{no"]


def test_a_config_that_is_not_valid_is_refused_with_its_keys() -> None:
    with pytest.raises(ConfigRefusedError) as caught:
        run_source("FileStreamSource", {"topic": "t", "fil": "x"})
    assert set(caught.value.errors) == {"file", "fil"}
    assert "fil: neither Connect nor FileStreamSource defines it, did you mean file?" in str(
        caught.value
    )


def test_a_class_of_the_other_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="ListSink is no SourceConnector"):
        run_source(ListSink, {})
    with pytest.raises(TypeError, match="SlowSource is no SinkConnector"):
        run_sink(SlowSource, {})


def test_the_contexts_are_what_tasks_take(tmp_path: Path) -> None:
    source: SourceTaskContext = FakeSourceContext()
    sink: SinkTaskContext = FakeSinkContext()
    connector: ConnectorContext = FakeConnectorContext()
    assert (source.stopping, sink.stopping) == (False, False)
    connector.request_task_reconfiguration()
    with pytest.raises(ValueError, match="topic-3 is not assigned to this task"):
        sink.pause(("topic", 3))


def test_a_task_is_called_directly(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("one\ntwo\n")
    task = FileStreamSourceTask()
    context = FakeSourceContext([({"filename": str(file)}, {"position": 4})])
    task.context = context
    task.start({"file": str(file), "topic": "t"})
    assert [record.value for record in task.poll() or ()] == ["two"]
    assert task.poll() is None
    assert context.waited == [1.0]
    task.stop()


def test_an_offset_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(Exception, match="object"):
        FakeSourceContext([({"p": object()}, {"n": 1})])


RUN = """
import sys
sys.modules["pytest"] = None
from headgate.testing import SourceConformance, run_source
run = run_source("FileStreamSource", {"file": "in.txt", "topic": "t"})
assert [each.value for each in run.messages] == ["one"], run
"""


def test_runs_need_no_pytest(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    subprocess.run([sys.executable, "-c", RUN], cwd=tmp_path, check=True)


def test_the_plugin_is_loaded_by_nobody_who_does_not_ask(pytestconfig: pytest.Config) -> None:
    assert not pytestconfig.pluginmanager.hasplugin("headgate.testing.plugin")
    assert "headgate_runtime.testing.plugin" not in sys.modules
