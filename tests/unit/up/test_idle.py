"""When `--until-idle` ends: each thing that must hold it up, and things that must not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headgate.herder.messages import TaskView, WorkerView
from headgate.ids import State, TargetState, TaskId
from headgate_runtime.up.idle import Outcome, failure_lines, idle_verdict
from headgate_runtime.up.snapshot import ConnectorSnapshot, Phase, Snapshot, WorkerSnapshot

SOURCE = TaskId("src", 0)
SINK = TaskId("snk", 0)
TOPIC = ("t", 0)


def _task(task: TaskId, state: State = State.RUNNING, *, idle: bool = True) -> TaskView:
    return TaskView(task, state, 10, 0, idle, 0, "")


def _view(name: str, **changes: Any) -> WorkerView:
    held = name == "w1"
    view = WorkerView(
        worker_id=name,
        url=name,
        member_id=f"{name}-member",
        leader="w1-member",
        generation=3,
        config_offset=9,
        settled=True,
        pending=(),
        connectors={"src": State.RUNNING, "snk": State.RUNNING} if held else {},
        tasks=(_task(SOURCE), _task(SINK, idle=False)) if held else (),
        rebalances=3,
    )
    return replace(view, **changes)


def _worker(name: str, phase: Phase = Phase.UP, **changes: Any) -> WorkerSnapshot:
    view = _view(name, **changes) if phase is Phase.UP else None
    return WorkerSnapshot(name, phase, 1, view)


def _connector(name: str, kind: str, **changes: Any) -> ConnectorSnapshot:
    sink = kind == "sink"
    connector = ConnectorSnapshot(
        name=name,
        kind=kind,
        named=True,
        target_state=TargetState.STARTED,
        tasks=(TaskId(name, 0),),
        committed=True,
        ends={TOPIC: 10} if sink else {},
        consumed={TOPIC: 10} if sink else {},
    )
    return replace(connector, **changes)


def _snapshot(
    w1: WorkerSnapshot | None = None,
    w2: WorkerSnapshot | None = None,
    source: ConnectorSnapshot | None = None,
    sink: ConnectorSnapshot | None = None,
    **changes: Any,
) -> Snapshot:
    snapshot = Snapshot(
        at=1.0,
        workers=(w1 or _worker("w1"), w2 or _worker("w2")),
        connectors=(source or _connector("src", "source"), sink or _connector("snk", "sink")),
        config_offset=9,
    )
    return replace(snapshot, **changes)


IDLE = _snapshot()


def test_two_quiet_looks_in_a_row_are_idle() -> None:
    assert idle_verdict(IDLE, IDLE).outcome is Outcome.IDLE


def test_one_look_is_not_enough() -> None:
    verdict = idle_verdict(IDLE, None)
    assert (verdict.outcome, verdict.reasons) == (Outcome.WAITING, ("a second look",))


def _tasks(*tasks: TaskView, now_ms: int = 0) -> WorkerSnapshot:
    return _worker("w1", tasks=tasks, now_ms=now_ms)


BUSY: dict[str, tuple[Callable[[], Snapshot], str]] = {
    "a change is not made yet": (
        lambda: _snapshot(applying=("making connector x",)),
        "making connector x",
    ),
    "a worker starts": (lambda: _snapshot(w2=_worker("w2", Phase.STARTING)), "w2 is starting"),
    "a worker died": (lambda: _snapshot(w2=_worker("w2", Phase.WAITING)), "w2 is restarting"),
    "a rebalance is under way": (
        lambda: _snapshot(w2=_worker("w2", settled=False, pending=("a delay of 3000 ms",))),
        "w2: a delay of 3000 ms",
    ),
    "a worker has not read the log to its end": (
        lambda: _snapshot(w2=_worker("w2", config_offset=8)),
        "w2 has read the config topic to 8, its end is 9",
    ),
    "a worker has no leader": (lambda: _snapshot(w2=_worker("w2", leader="")), "knows no leader"),
    "workers are in different rounds": (
        lambda: _snapshot(w2=_worker("w2", generation=4)),
        "workers are in generations 3, 4",
    ),
    "nobody owns a connector": (
        lambda: _snapshot(_worker("w1", connectors={"src": State.RUNNING})),
        "snk has no owner",
    ),
    "two own a connector": (
        lambda: _snapshot(w2=_worker("w2", connectors={"snk": State.RUNNING})),
        "snk has 2 owners",
    ),
    "a connector starts": (
        lambda: _snapshot(
            _worker("w1", connectors={"src": State.UNASSIGNED, "snk": State.RUNNING})
        ),
        "src is UNASSIGNED",
    ),
    "a connector has no task configs": (
        lambda: _snapshot(source=_connector("src", "source", committed=False, tasks=())),
        "src has no task configs yet",
    ),
    "a task of the log runs nowhere": (
        lambda: _snapshot(_tasks(_task(SOURCE))),
        "snk-0 has no owner",
    ),
    "a task runs twice": (
        lambda: _snapshot(w2=_worker("w2", tasks=(_task(SOURCE),))),
        "src-0 has 2 owners",
    ),
    "a task starts": (
        lambda: _snapshot(_tasks(_task(SOURCE, State.UNASSIGNED), _task(SINK))),
        "src-0 is UNASSIGNED",
    ),
    "a task is started anew": (
        lambda: _snapshot(_tasks(_task(SOURCE, State.RESTARTING), _task(SINK))),
        "src-0 is RESTARTING",
    ),
    "a source has more to read": (
        lambda: _snapshot(_tasks(_task(SOURCE, idle=False), _task(SINK))),
        "src-0 has more to read",
    ),
    "a source moves nothing, and may hang": (
        lambda: _snapshot(
            _tasks(replace(_task(SOURCE, idle=False), moved_ms=5_000), _task(SINK), now_ms=50_000)
        ),
        "src-0 has more to read, and has moved nothing for 45 s",
    ),
    "a sink lags": (
        lambda: _snapshot(sink=_connector("snk", "sink", consumed={TOPIC: 7})),
        "snk has 3 records to go",
    ),
    "a sink has committed nothing": (
        lambda: _snapshot(sink=_connector("snk", "sink", consumed={})),
        "snk has 10 records to go",
    ),
    "a pause is not carried out yet": (
        lambda: _snapshot(
            source=_connector("src", "source", target_state=TargetState.PAUSED),
        ),
        "src is RUNNING",
    ),
}


@pytest.mark.parametrize("case", BUSY)
def test_it_waits_while(case: str) -> None:
    make, reason = BUSY[case]
    busy = make()
    for now, before in ((busy, IDLE), (busy, busy)):
        verdict = idle_verdict(now, before)
        assert verdict.outcome is Outcome.WAITING
        assert any(reason in text for text in verdict.reasons), verdict.reasons
    assert idle_verdict(IDLE, busy).outcome is Outcome.WAITING, "the look before counts too"


def test_records_that_came_between_the_looks_start_it_over() -> None:
    later = _snapshot(sink=_connector("snk", "sink", ends={TOPIC: 12}, consumed={TOPIC: 12}))
    verdict = idle_verdict(later, IDLE)
    assert verdict.outcome is Outcome.WAITING
    assert verdict.reasons == ("snk: new records in its topics",)


def test_a_rebalance_between_the_looks_starts_it_over() -> None:
    later = _snapshot(_worker("w1", generation=4), _worker("w2", generation=4))
    assert idle_verdict(later, IDLE).reasons == ("a rebalance took place",)


def test_a_config_record_between_the_looks_starts_it_over() -> None:
    later = _snapshot(
        _worker("w1", config_offset=11), _worker("w2", config_offset=11), config_offset=11
    )
    assert idle_verdict(later, IDLE).reasons == ("the config topic has grown",)


def test_paused_and_stopped_count_as_idle() -> None:
    quiet = _snapshot(
        _worker(
            "w1",
            connectors={"src": State.STOPPED, "snk": State.PAUSED},
            tasks=(_task(SINK, State.PAUSED),),
        ),
        source=_connector("src", "source", target_state=TargetState.STOPPED, tasks=()),
        sink=_connector("snk", "sink", target_state=TargetState.PAUSED, consumed={}),
    )
    assert idle_verdict(quiet, quiet).outcome is Outcome.IDLE


def test_a_paused_source_need_not_be_idle() -> None:
    quiet = _snapshot(
        _worker(
            "w1",
            connectors={"src": State.PAUSED, "snk": State.RUNNING},
            tasks=(_task(SOURCE, State.PAUSED, idle=False), _task(SINK)),
        ),
        source=_connector("src", "source", target_state=TargetState.PAUSED),
    )
    assert idle_verdict(quiet, quiet).outcome is Outcome.IDLE


class TestFailed:
    def test_a_failed_task_is_told_once_the_others_are_idle(self) -> None:
        failed = _snapshot(
            _tasks(_task(SOURCE, State.FAILED, idle=False), _task(SINK)),
            failures={"src-0": "in/a.csv: line 3"},
        )
        verdict = idle_verdict(failed, failed)
        assert verdict.outcome is Outcome.FAILED
        assert verdict.reasons == ("task src-0 FAILED on w1: in/a.csv: line 3",)

    def test_the_others_are_awaited(self) -> None:
        busy = _snapshot(
            _tasks(_task(SOURCE, State.FAILED), _task(SINK)),
            sink=_connector("snk", "sink", consumed={TOPIC: 7}),
        )
        assert idle_verdict(busy, busy).outcome is Outcome.WAITING

    def test_a_sink_with_a_failed_task_need_not_catch_up_but_come_to_rest(self) -> None:
        def at(consumed: int) -> Snapshot:
            return _snapshot(
                _tasks(_task(SOURCE), _task(SINK, State.FAILED)),
                sink=_connector("snk", "sink", consumed={TOPIC: consumed}),
            )

        assert idle_verdict(at(7), at(6)).reasons == ("snk is moving on",)
        assert idle_verdict(at(7), at(7)).outcome is Outcome.FAILED

    def test_a_failed_connector(self) -> None:
        failed = _snapshot(
            _worker(
                "w1",
                connectors={"src": State.FAILED, "snk": State.RUNNING},
                tasks=(_task(SINK),),
            ),
            source=_connector("src", "source", committed=False, tasks=()),
            failures={"src": "no such directory"},
        )
        verdict = idle_verdict(failed, failed)
        assert verdict.outcome is Outcome.FAILED
        assert verdict.reasons == ("connector src FAILED on w1: no such directory",)

    def test_tasks_of_a_deleted_connector_that_a_worker_still_has(self) -> None:
        looked = _snapshot(
            _worker(
                "w1",
                connectors={"src": State.FAILED, "snk": State.FAILED},
                tasks=(
                    _task(SINK, State.FAILED),
                    replace(_task(SOURCE), quarantined=("in/a.csv: not UTF-8",)),
                ),
            )
        )
        assert len(tuple(failure_lines(looked))) == 4
        assert not tuple(failure_lines(replace(looked, connectors=())))

    def test_a_refused_change(self) -> None:
        refused = _snapshot(refused=("making connector x was refused: why",))
        verdict = idle_verdict(refused, refused)
        assert verdict.outcome is Outcome.FAILED
        assert verdict.reasons == ("making connector x was refused: why",)

    def test_a_worker_given_up_while_another_does_its_work(self) -> None:
        given_up = _snapshot(
            w2=WorkerSnapshot("w2", Phase.GIVEN_UP, None, None, note="it ended 5 times")
        )
        verdict = idle_verdict(given_up, given_up)
        assert verdict.outcome is Outcome.FAILED
        assert verdict.reasons == ("w2 was given up: it ended 5 times",)

    def test_no_worker_is_left(self) -> None:
        gone = _snapshot(
            WorkerSnapshot("w1", Phase.GIVEN_UP, None, None, note="x"),
            WorkerSnapshot("w2", Phase.GIVEN_UP, None, None, note="y"),
        )
        verdict = idle_verdict(gone, None)
        assert verdict.outcome is Outcome.FAILED
        assert verdict.reasons[0] == "no worker is left"


def test_a_silent_worker_that_owns_nothing_does_not_hold_up_the_end() -> None:
    quiet = _snapshot(w2=WorkerSnapshot("w2", Phase.SILENT, 1, None))
    assert idle_verdict(quiet, quiet).outcome is Outcome.IDLE


def test_a_silent_worker_leaves_its_work_unseen() -> None:
    silent = _snapshot(WorkerSnapshot("w1", Phase.SILENT, 1, None))
    assert idle_verdict(silent, silent).outcome is Outcome.WAITING


def test_nobody_answers() -> None:
    silent = _snapshot(*(WorkerSnapshot(n, Phase.SILENT, 1, None) for n in ("w1", "w2")))
    assert "no worker answers" in idle_verdict(silent, silent).reasons


def test_what_a_task_has_set_aside_is_a_failure_that_names_each_input() -> None:
    """The task itself goes on with the others and is RUNNING."""
    aside = tuple(f"in/{n}.csv: not UTF-8" for n in range(25))
    view = replace(_task(SOURCE), quarantined=aside)
    quiet = _snapshot(_tasks(view, _task(SINK, idle=False)))
    verdict = idle_verdict(quiet, quiet)
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reasons[0] == "task src-0 set aside in/0.csv: not UTF-8"
    assert verdict.reasons[-1] == "task src-0 set aside 5 more; its worker's log names them"
    assert len(verdict.reasons) == 21
