"""The totals of a run are counted from the log, not from the workers' reports."""

from headgate.ids import TargetState, TaskId
from headgate_runtime.up.snapshot import ConnectorSnapshot
from headgate_runtime.up.totals import Offsets, lines, totals


def _sink(ends: Offsets, consumed: Offsets) -> ConnectorSnapshot:
    tasks = (TaskId("sink", 0),)
    return ConnectorSnapshot("sink", "sink", True, TargetState.STARTED, tasks, True, ends, consumed)


def test_records_are_counted_from_end_offsets_and_committed_offsets() -> None:
    before, ends = {("t", 0): 10}, {("t", 0): 25, ("t", 1): 5, ("u", 0): 1}
    sinks_before = [_sink(before, {("t", 0): 4})]
    found = totals(
        before, {("t", 1): 2}, ends, sinks_before, [_sink(ends, {("t", 0): 25, ("t", 1): 3})]
    )
    assert lines(found) == [
        "  topic t: 28 records in the log, 20 of them new",
        "  topic u: 1 record in the log, 1 of them new",
        "  sink sink: 28 records committed, 24 of them in this run, lag 3",
    ]


def test_a_first_run_has_nothing_before_it() -> None:
    ends = {("t", 0): 2_000}
    found = totals({}, {}, ends, [], [_sink(ends, ends)])
    assert [(one.records, one.new) for one in found.topics] == [(2_000, 2_000)]
    assert [(one.committed, one.new, one.lag) for one in found.sinks] == [(2_000, 2_000, 0)]
