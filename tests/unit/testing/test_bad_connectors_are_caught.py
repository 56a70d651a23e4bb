"""The conformance suite finds each planted fault of a connector, and names the record and the
offset."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headgate.connector import (
    ConfigDef,
    ExactlyOnceSupport,
    Schema,
    SchemaType,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SkippedRecord,
    SourceConnector,
    SourceRecord,
    SourceTask,
    Type,
)
from headgate.testing import (
    ConformanceError,
    Message,
    SinkConformance,
    SourceConformance,
    run_source,
)
from headgate_runtime.testing.compare import AS_TEXT, same_values
from headgate_runtime.testing.sources import WITH_LETTERS

LETTERS = "abcdef"


class LettersTask(SourceTask):
    """Reads letters, two at a time, and goes on behind the last committed one."""

    behind: ClassVar[int] = 1
    """How far behind the committed number the task goes on."""

    def start(self, config: Mapping[str, str]) -> None:
        committed = self.context.offsets.offset({})
        self.next = 0 if committed is None else committed["number"] + self.behind

    def poll(self) -> list[SourceRecord | SkippedRecord]:
        numbers = range(self.next, min(self.next + 2, len(LETTERS)))
        self.next = max(self.next, numbers.stop)
        return [SourceRecord({}, {"number": self.number(n)}, "t", LETTERS[n]) for n in numbers]

    def number(self, n: int) -> int:
        return n


class LosesTask(LettersTask):
    behind = 2


class DoublesTask(LettersTask):
    behind = 0


class VagueTask(LettersTask):
    """Every record of a batch has the offset of the batch's first."""

    def number(self, n: int) -> int:
        return n - n % 2


class SilentTask(LettersTask):
    """A fault: the task skips what it cannot read, and does not report it."""

    def poll(self) -> list[SourceRecord | SkippedRecord]:
        return [each for each in super().poll() if getattr(each, "value", "") != "c"]


class MemoryTask(LettersTask):
    """Goes on from the class's memory, which another process does not have."""

    seen: ClassVar[int] = -1

    def start(self, config: Mapping[str, str]) -> None:
        self.next = type(self).seen + 1


class BadTask(LettersTask):
    """Cannot read one of the letters, the last of a batch."""

    bad_offset: ClassVar[int] = 3

    def poll(self) -> list[SourceRecord | SkippedRecord]:
        bad = SkippedRecord({}, {"number": self.bad_offset}, "no letter", raw=b"?")
        return [bad if getattr(each, "value", "") == "d" else each for each in super().poll()]


class LateTask(BadTask):
    """The bad input has the offset of the record before it, so a new start reads it again."""

    bad_offset = 2


class EarlyOffsetTask(BadTask):
    """The bad input has the offset of the record behind it, which a new start then leaves out."""

    bad_offset = 4


class LettersSource(SourceConnector):
    TASK: ClassVar[type[SourceTask]] = LettersTask

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{}]


class Letters(SourceConformance):
    connector: ClassVar[Any] = LettersSource

    def expected(self) -> Sequence[str]:
        return list(LETTERS)


def letters(task: type[SourceTask], **more: Any) -> Letters:
    connector = type("Planted", (LettersSource,), {"TASK": task})
    suite = type("TestPlanted", (Letters,), {"connector": connector, **more})
    made: Letters = suite()
    return made


class BufferTask(SinkTask):
    """Keeps records and writes them when told to flush."""

    def start(self, config: Mapping[str, str]) -> None:
        self.path = Path(config["file"])
        self.path.touch()
        self.kept: list[str] = []

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.kept += [record.value for record in records]

    def flush(self) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{line}\n" for line in self.kept)
        self.kept.clear()


class EarlyTask(BufferTask):
    """A fault: the task lets offsets be committed of records that it keeps, and writes them when it
    stops."""

    def flush(self) -> None:
        pass

    def stop(self) -> None:
        super().flush()


class DropsTask(BufferTask):
    """A fault: the task drops the records that it keeps when partitions are revoked, after it has
    reported them as written."""

    def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        if len(self.kept) > 4 or self.context.stopping:
            self.flush()
            return offsets
        return {} if self.context.assignment() else offsets

    def close(self, partitions: Any) -> None:
        self.kept.clear()


class SwallowsTask(BufferTask):
    """A fault: the task skips what it cannot write."""

    def put(self, records: Sequence[SinkRecord]) -> None:
        super().put([record for record in records if isinstance(record.value, str)])


class KeepsTask(BufferTask):
    """A fault: at its stop the task writes records that it kept and that are also delivered
    again."""

    def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        return {}

    def stop(self) -> None:
        self.flush()


class BufferSink(SinkConnector):
    TASK: ClassVar[type[SinkTask]] = BufferTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("file", Type.STRING)

    def start(self, config: Mapping[str, str]) -> None:
        self.config = dict(config)

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [self.config]


class Buffered(SinkConformance):
    connector: ClassVar[Any] = BufferSink

    def prepare(self, folder: Path) -> Mapping[str, str]:
        return {"file": str(folder / "out.txt")}

    def written(self, folder: Path) -> Sequence[str]:
        file = folder / "out.txt"
        return file.read_text().splitlines() if file.exists() else []


def buffered(task: type[SinkTask], **more: Any) -> Buffered:
    connector = type("Planted", (BufferSink,), {"TASK": task})
    suite = type("TestPlanted", (Buffered,), {"connector": connector, **more})
    made: Buffered = suite()
    return made


def text_of(check: Callable[..., None], *given: Any) -> str:
    """Return the error of a check, which must fail."""
    with pytest.raises(ConformanceError) as caught:
        check(*given)
    return str(caught.value)


def checks(suite: SourceConformance | SinkConformance, tmp_path: Path, request: Any) -> set[str]:
    """Names of the checks that the suite fails."""
    failed = set()
    for name in sorted(name for name in dir(suite) if name.startswith("test_")):
        folder = tmp_path / name
        folder.mkdir()
        check = getattr(type(suite)(), name)
        with_request = "request" in check.__code__.co_varnames[: check.__code__.co_argcount]
        try:
            check(folder, request) if with_request else check(folder)
        except ConformanceError:
            failed.add(name)
        except pytest.skip.Exception:
            pass
    return failed


def test_their_sound_siblings_pass_all(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "sink").mkdir()
    assert checks(letters(LettersTask), tmp_path / "source", request) == set()
    assert checks(buffered(BufferTask), tmp_path / "sink", request) == set()


def test_a_source_that_loses_a_record_at_a_restart(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    suite = letters(LosesTask)
    text = text_of(suite.test_goes_on_from_every_offset, tmp_path, request)
    assert text == (
        "a start after record 1, 'a' (source partition {}, offset {'number': 0}):\n"
        "  lost: 'b' (source partition {}, offset {'number': 1})\n"
        "  expected 5 records, found 4"
    )
    assert checks(letters(LosesTask), tmp_path, request) == {
        "test_goes_on_from_every_offset",
        "test_survives_a_kill_at_every_point",
        "test_survives_a_stop_at_every_point",
        "test_survives_a_takeover_at_every_point",
    }


def test_a_source_that_doubles_a_record_at_a_restart(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = text_of(letters(DoublesTask).test_goes_on_from_every_offset, tmp_path, request)
    assert "a start after record 1, 'a' (source partition {}, offset {'number': 0}):" in text
    assert "not expected: 'a' (source partition {}, offset {'number': 0})" in text


def test_a_source_whose_offsets_are_vague(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = text_of(letters(VagueTask).test_goes_on_from_every_offset, tmp_path, request)
    assert "a start after record 2, 'b'" in text
    assert "'b' (source partition {}, offset {'number': 0})" in text


def test_a_source_that_leaves_out_a_record_without_a_word(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = text_of(letters(SilentTask).test_reads_what_is_expected, tmp_path)
    assert "lost: 'c', which expected() names" in text
    suite = letters(SilentTask, bad_input=lambda _self, _folder: {})
    text = text_of(suite.test_bad_input_costs_itself_alone, tmp_path)
    assert "nothing was said of it" in text


class WithBadInput(Letters):
    """The suite with bad input. It expects the same source without the letter that cannot be
    read."""

    def bad_input(self, folder: Path) -> Mapping[str, str]:
        return {}

    def _expected(self, tmp_path: Path) -> list[Message]:
        return [Message(letter) for letter in LETTERS if letter != "d"]


def with_bad_input(task: type[SourceTask], **more: Any) -> Letters:
    connector = type("Planted", (LettersSource,), {"TASK": task})
    made: Letters = type("TestPlanted", (WithBadInput,), {"connector": connector, **more})()
    return made


@pytest.mark.parametrize("exactly_once", [True, False])
def test_bad_input_is_a_dead_letter_and_the_others_keep_their_offsets(
    tmp_path: Path, request: pytest.FixtureRequest, exactly_once: bool
) -> None:
    """A letter has no part in the offsets that the suite notes for records."""
    with_bad_input(BadTask, exactly_once=exactly_once).test_bad_input_is_one_dead_letter(
        tmp_path, request
    )
    connector = type("Planted", (LettersSource,), {"TASK": BadTask})
    run = run_source(connector, WITH_LETTERS, exactly_once=exactly_once)
    assert [(each.value, each.source_offset) for each in run.messages] == [
        (letter, {"number": n}) for n, letter in enumerate(LETTERS) if letter != "d"
    ]
    assert [(each.value, each.topic, each.source_offset) for each in run.letters] == [
        (b"?", "dead-letters", {"number": 3})
    ]


def test_bad_input_whose_offset_is_wrong(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "late").mkdir()
    suite = with_bad_input(LateTask)
    text = text_of(suite.test_bad_input_is_one_dead_letter, tmp_path / "late", request)
    assert "dead letters of a new start after a kill at point " in text
    assert "doubled: b'?' (source partition {}, offset {'number': 2})" in text
    (tmp_path / "early").mkdir()
    suite = with_bad_input(EarlyOffsetTask)
    text = text_of(suite.test_bad_input_is_one_dead_letter, tmp_path / "early", request)
    assert "lost: 'e' (source partition {}, offset {'number': 4})" in text


def test_bad_input_that_is_no_dead_letter(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    suite = with_bad_input(SilentTask)
    text = text_of(suite.test_bad_input_is_one_dead_letter, tmp_path, request)
    assert "nothing was said of it: expected a dead letter" in text


def test_a_source_that_goes_on_from_its_own_memory(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = text_of(letters(MemoryTask).test_goes_on_from_every_offset, tmp_path, request)
    assert "not expected: 'a'" in text


def test_a_sink_whose_offsets_are_committed_before_its_records_are_written(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = text_of(buffered(EarlyTask).test_commits_only_what_is_written, tmp_path)
    assert text.startswith("offsets were committed of records that are not written:\n  lost: ")
    assert "'text 0' (topic-0, offset 0)" in text
    assert "committed by then: topic-0: 3, topic-1: 3" in text
    failed = checks(buffered(EarlyTask), tmp_path, request)
    assert "test_survives_a_kill_at_every_point" in failed
    assert "test_writes_every_record" not in failed


def test_a_sink_that_loses_at_a_rebalance(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    failed = checks(buffered(DropsTask), tmp_path, request)
    assert "test_survives_a_rebalance_at_every_point" in failed
    assert "test_writes_every_record" not in failed


def test_a_sink_that_doubles_and_promises_exactly_once(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    suite = buffered(BufferTask, exactly_once=True)
    text = text_of(suite.test_survives_a_kill_at_every_point, tmp_path, request)
    assert "doubled: 'text " in text


def test_a_sink_that_never_names_what_it_has_written(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = text_of(buffered(KeepsTask).test_writes_every_record, tmp_path)
    assert "all is written, but not all offsets are committed: it committed nothing" in text


@pytest.mark.parametrize(
    ("declared", "promised", "text"),
    [
        (ExactlyOnceSupport.SUPPORTED, False, "says SUPPORTED, and exactly_once is False: so let"),
        (ExactlyOnceSupport.UNSUPPORTED, True, "says UNSUPPORTED, and exactly_once is True: expec"),
        (None, True, "says nothing, and exactly_once is True: expected SUPPORTED"),
        (ExactlyOnceSupport.SUPPORTED, True, ""),
        (ExactlyOnceSupport.UNSUPPORTED, False, ""),
        (None, False, ""),
    ],
)
def test_a_sink_that_declares_another_promise(
    tmp_path: Path, declared: ExactlyOnceSupport | None, promised: bool, text: str
) -> None:
    support = classmethod(lambda _cls, _config: declared)
    sink = type("Declares", (BufferSink,), {"exactly_once_support": support})
    suite = buffered(BufferTask, connector=sink, exactly_once=promised)
    if text:
        assert text in text_of(suite.test_declares_what_it_promises, tmp_path)
    else:
        suite.test_declares_what_it_promises(tmp_path)


def test_a_sink_that_passes_over_what_it_cannot_write(tmp_path: Path) -> None:
    number = Message(7, value_schema=Schema(SchemaType.INT64))
    suite = buffered(SwallowsTask, bad_message=lambda _self: number)
    text = text_of(suite.test_bad_input_is_not_passed_over, tmp_path)
    assert "the task ended as stopped, expected that it fails" in text


def test_a_value_that_arrives_as_text_is_explained() -> None:
    expected: list[tuple[object, str]] = [({"id": 1}, "a record"), (7, "another")]
    assert same_values(expected, ['{"id":1}', "7"])[-1] == AS_TEXT
    assert AS_TEXT not in same_values(expected, ['{"id":2}', "8"])
    assert AS_TEXT not in same_values([("one", "a record")], ["two"])
    assert not same_values(expected, [7, {"id": 1}])
