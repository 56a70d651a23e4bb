"""A converter or a transform asks for another attempt: `errors.retry.*` (KIP-298).

The task can be paused and stopped meanwhile, and no record is lost.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.task.body_bench import BodyBench, source_offsets, visible
from support.task.scripted_source import KEY, Scripted, record, run_dry, scripted
from support.task.sink_records import committed, fill
from support.task.value_sink import Values

from headgate.connector.api import RetriableError, SinkRecord, SourceRecord, TransactionContext
from headgate.connector.error_handling import ErrorSettings, Retry
from headgate.task.messages import PauseTask, ResumeTask, TaskKind, TaskOutcome, TaskPaused

RETRIES = {"errors.retry.timeout": "-1", "errors.retry.delay.max.ms": "20"}


class Later:
    """A transform that lets a value through only after `tries` attempts. It changes records in
    place, so a record that came twice would show it."""

    def __init__(self, value: str, tries: int) -> None:
        self.value, self.left = value, tries
        self.tried = 0

    def configure(self, config: Mapping[str, str]) -> None:
        pass

    def _apply(self, record: Any) -> Any:
        if str(record.value).startswith(self.value):
            self.tried += 1
            if self.left > 0:
                self.left -= 1
                raise RetriableError("the look-up service is away")
        return record

    def apply_source(self, record: SourceRecord) -> SourceRecord | None:
        return self._apply(record)  # type: ignore[no-any-return]

    def apply_sink(self, record: SinkRecord) -> SinkRecord | None:
        return self._apply(record)  # type: ignore[no-any-return]


class Marking(Later):
    def __init__(self) -> None:
        super().__init__("", 0)

    def _apply(self, record: Any) -> Any:
        record.value += "!"
        return record


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_source_goes_on_where_a_record_failed(tmp_path: Path, exactly_once: bool) -> None:
    later = Later("2", 3)
    task = scripted([record(1), record(2), record(3)], [record(4)])
    bench = BodyBench(
        tmp_path, task, RETRIES, exactly_once=exactly_once, chain=[Marking(), later, Marking()]
    )
    run_dry(bench)
    bench.stop()
    assert visible(tmp_path, "t") == ["1!!", "2!!", "3!!", "4!!"]
    assert (later.tried, bench.progress.records, bench.progress.skipped) == (4, 4, 0)


def test_a_sink_goes_on_where_a_record_failed(tmp_path: Path) -> None:
    fill(tmp_path, [b"1", b"2", b"3"])
    later = Later("2", 3)
    bench = BodyBench(
        tmp_path,
        Values,
        {"topics": "t", **RETRIES},
        kind=TaskKind.SINK,
        chain=[Marking(), later, Marking()],
    )
    Values.taken = []
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 3})
    bench.stop()
    assert (Values.taken, later.tried) == (["1!!", "2!!", "3!!"], 4)


def test_a_pause_and_a_stop_do_not_wait_for_the_last_attempt(tmp_path: Path) -> None:
    task = scripted([record(1), record(2), record(3)])
    never = Later("2", 1_000_000)
    config = {**RETRIES, "errors.retry.delay.max.ms": "60000"}
    bench = BodyBench(tmp_path, task, config, chain=[never])
    bench.start().until(lambda: never.tried == 2)
    bench.lifeline.deliver(PauseTask())
    bench.until(lambda: TaskPaused() in bench.reports, 5)
    tried = never.tried
    bench.lifeline.deliver(ResumeTask())
    bench.until(lambda: never.tried > tried)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    # What stood before it is committed, and it is not passed over.
    assert (visible(tmp_path, "t"), source_offsets(tmp_path)) == (["1"], {KEY: b'{"n":1}'})


@pytest.mark.parametrize(
    ("tolerance", "outcome"), [("none", TaskOutcome.FAILED), ("all", TaskOutcome.STOPPED)]
)
def test_when_its_time_is_over_the_tolerance_decides(
    tmp_path: Path, tolerance: str, outcome: TaskOutcome
) -> None:
    never = Later("2", 1_000_000)
    config = {
        "errors.retry.timeout": "60",
        "errors.retry.delay.max.ms": "20",
        "errors.tolerance": tolerance,
    }
    bench = BodyBench(tmp_path, scripted([record(1), record(2), record(3)]), config, chain=[never])
    run_dry(bench)
    ended = bench.wait() if outcome is TaskOutcome.FAILED else bench.stop()
    assert ended.outcome is outcome
    assert never.tried >= 3
    if tolerance == "all":
        assert visible(tmp_path, "t") == ["1", "3"]
        assert "RetriableError: the look-up service is away" in bench.progress.detail
    else:
        assert "RetriableError: the look-up service is away" in ended.reason


def test_without_a_time_limit_of_its_own_nothing_is_tried_again(tmp_path: Path) -> None:
    later = Later("2", 1)
    ended = BodyBench(tmp_path, scripted([record(2)]), {}, chain=[later]).start().wait()
    assert (ended.outcome, later.tried) == (TaskOutcome.FAILED, 1)


def test_a_connectors_own_transaction_ends_with_the_whole_batch(tmp_path: Path) -> None:
    """A batch that goes on later is still one batch: its end, and so its commit, come once."""
    later = Later("2", 2)

    class Own(Scripted):
        batches = [[record(1), record(2), record(3)], [record(4)]]  # noqa: RUF012

        def poll(self):  # type: ignore[no-untyped-def]
            transaction: TransactionContext | None = self.context.transaction
            assert transaction is not None
            given = super().poll()
            if given and given[0].source_offset == {"n": 1}:
                transaction.abort_transaction()
            elif given:
                transaction.commit_transaction()
            return given

    config = {**RETRIES, "transaction.boundary": "connector"}
    bench = BodyBench(tmp_path, Own, config, chain=[later])
    run_dry(bench)
    bench.until(lambda: source_offsets(tmp_path) == {KEY: b'{"n":4}'})
    bench.stop()
    assert visible(tmp_path, "t") == ["4"]


@pytest.mark.parametrize(
    ("timeout", "delay_max", "waits"),
    [
        (0, 60_000, []),
        (-1, 1_000, [300, 600, 500, 500]),
        (1_000, 60_000, [300, 600, 100]),
        (-1, 0, [0, 0, 0, 0]),
    ],
)
def test_waits_double_up_to_the_longest(timeout: int, delay_max: int, waits: list[int]) -> None:
    """Source: RetryWithToleranceOperator.backoff."""
    settings = ErrorSettings(retry_timeout_ms=timeout, retry_delay_max_ms=delay_max)
    now_ms, found = 5_000, list[int]()
    retry = Retry(settings, now_ms)
    while len(found) < 4 and retry.failed(now_ms):
        found.append(retry.due_ms - now_ms)
        now_ms = retry.due_ms
    assert found == waits
