"""A source task reports offsets alone, and inputs that it has set aside."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from support.task.body_bench import BodyBench, source_offsets, visible
from support.task.scripted_source import KEY, Scripted, record, run_dry, scripted

from headgate.connector.api import OffsetUpdate, SkippedRecord, SourceItem
from headgate.task.messages import UNTIL_IDLE, TaskOutcome


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize(
    "batches",
    [
        [[record(1)], [OffsetUpdate({"file": "a"}, {"n": 7})]],
        [[record(1), OffsetUpdate({"file": "a"}, {"n": 7})]],
        [[OffsetUpdate({"file": "a"}, {"n": 3}), record(7)]],
    ],
)
def test_an_offset_without_a_record_is_committed_in_its_place(
    tmp_path: Path, batches: list[list[SourceItem]], exactly_once: bool
) -> None:
    bench = BodyBench(tmp_path, scripted(*batches), exactly_once=exactly_once)
    run_dry(bench)
    assert source_offsets(tmp_path) == {KEY: b'{"n":7}'}
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert len(visible(tmp_path, "t")) == 1
    assert bench.progress.records == 1
    assert bench.progress.skipped == 0


def test_a_skipped_piece_counts_all_records_that_are_lost_with_it(tmp_path: Path) -> None:
    lost = SkippedRecord({"file": "a"}, {"n": 2}, "rows 1 to 500", count=500)
    bench = BodyBench(tmp_path, scripted([lost]), {"errors.tolerance": "all"})
    run_dry(bench)
    bench.stop()
    assert bench.progress.skipped == 500


class SettingAside(Scripted):
    batches = [[record(1)]]  # noqa: RUF012

    def poll(self) -> "Iterable[SourceItem] | None":
        self.context.quarantine(["a.csv: not UTF-8, password secret"])
        return super().poll()


def test_what_a_task_sets_aside_is_in_its_progress(tmp_path: Path) -> None:
    bench = BodyBench(tmp_path, SettingAside)
    run_dry(bench)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert bench.progress.quarantined == ("a.csv: not UTF-8, password secret",)
    assert bench.progress.detail == "a.csv: not UTF-8, password secret"
    assert visible(tmp_path, "t") == ["1"]


class Asking(Scripted):
    batches = [[record(1)]]  # noqa: RUF012
    told: bool

    def poll(self) -> "Iterable[SourceItem] | None":
        type(self).told = self.context.until_idle
        return super().poll()


@pytest.mark.parametrize("ends", [True, False])
def test_a_task_is_told_whether_its_worker_ends_when_all_is_read(
    tmp_path: Path, ends: bool
) -> None:
    bench = BodyBench(tmp_path, Asking, settings={UNTIL_IDLE: "true"} if ends else {})
    run_dry(bench)
    bench.stop()
    assert Asking.told is ends
