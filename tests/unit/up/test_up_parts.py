"""The parts of `headgate up`: restarts, rates, changes in words, the timeline, the display."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headgate.herder.messages import DeleteConnector, PutConnectorConfig, TaskView, WorkerView
from headgate.ids import State, TargetState, TaskId
from headgate.task.messages import BatchDone
from headgate.topics.config_events import ConnectorConfigured, TargetStateChanged
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate_runtime.tasks.process_restarts import (
    LONGEST_PAUSE_S,
    QUICK_MAX,
    SETTLED_S,
    UNANSWERED_MAX,
    Restarts,
)
from headgate_runtime.up.apply import planned_changes
from headgate_runtime.up.changes import changes
from headgate_runtime.up.command import BEAT_S, TOLD_S, rest_after
from headgate_runtime.up.display import Heading, LiveDisplay, PlainDisplay, progress_line
from headgate_runtime.up.idle import failure_lines, failures_at_stop
from headgate_runtime.up.processes import how_it_ended, warnings_of
from headgate_runtime.up.rates import Rates
from headgate_runtime.up.snapshot import ConnectorSnapshot, Phase, Snapshot, WorkerSnapshot
from headgate_runtime.up.timeline import Timeline, draw
from headgate_runtime.worker.traces import first_words

A0, A1 = TaskId("a", 0), TaskId("a", 1)


def _worker(name: str, *tasks: TaskView, phase: Phase = Phase.UP, gen: int = 1) -> WorkerSnapshot:
    connectors = {"a": State.RUNNING} if name == "w1" else {}
    view = WorkerView(name, name, name, "w1", gen, 1, True, (), connectors, tasks, gen)
    return WorkerSnapshot(name, phase, 7, view if phase is Phase.UP else None, view)


def _task(
    task: TaskId, state: State = State.RUNNING, records: int = 0, skipped: int = 0, detail: str = ""
) -> TaskView:
    return TaskView(task, state, records, skipped, False, 0, detail)


def _snapshot(at: float, *workers: WorkerSnapshot) -> Snapshot:
    connector = ConnectorSnapshot("a", "source", True, TargetState.STARTED, (A0, A1), True, {}, {})
    return Snapshot(at, workers, (connector,), 1)


def _with_last(snapshot: Snapshot) -> tuple[WorkerSnapshot, ...]:
    return tuple(replace(one, last_view=one.view) for one in snapshot.workers)


class TestRestarts:
    def test_a_process_that_never_answers_is_given_up(self) -> None:
        restarts = Restarts()
        pauses = [restarts.ended(answered=False, lived_s=1.0) for _ in range(UNANSWERED_MAX)]
        assert pauses == [0.5, 1.0, 2.0, 4.0, None]
        assert restarts.why() == "it ended 5 times without having answered once"

    def test_pauses_grow_to_a_limit_and_end(self) -> None:
        restarts = Restarts()
        pauses = [restarts.ended(answered=True, lived_s=1.0) for _ in range(QUICK_MAX)]
        assert pauses[8] == LONGEST_PAUSE_S
        assert None not in pauses[:-1]
        assert pauses[-1] is None
        assert "30 times in a row within 10 s" in restarts.why()

    def test_one_that_lived_long_starts_the_count_over(self) -> None:
        restarts = Restarts()
        for _ in range(100):
            assert restarts.ended(answered=True, lived_s=1.0) is not None
            assert restarts.ended(answered=True, lived_s=SETTLED_S) == 0.5


class TestRates:
    def test_records_per_second_over_the_window(self) -> None:
        rates = Rates(window_s=5)
        for second in range(11):
            rates.update(float(second), {A0: 100 * second if second < 6 else 500})
        assert rates.total(A0) == 500
        assert rates.per_second(A0, 10.0) == 0.0

    def test_a_new_run_counts_on(self) -> None:
        rates = Rates()
        rates.update(0.0, {A0: 100})
        rates.update(1.0, {A0: 30})  # started anew, has written 30
        assert rates.total(A0) == 130
        assert rates.per_second(A0, 1.0) == 30.0

    def test_a_task_that_is_seen_nowhere_has_no_rate(self) -> None:
        rates = Rates(window_s=5)
        rates.update(0.0, {A0: 0})
        rates.update(1.0, {A0: 100})
        assert rates.per_second(A0, 7.0) == 0.0
        assert rates.per_second(A1, 7.0) == 0.0


class TestChanges:
    def test_first_look(self) -> None:
        now = _snapshot(0, _worker("w1", _task(A0)), _worker("w2", phase=Phase.STARTING))
        assert changes(None, now) == [
            "w1 is up",
            "rebalance: generation 1",
            "connector a RUNNING on w1",
            "task a-0 RUNNING on w1",
        ]

    def test_what_was_skipped_before_the_first_look_is_told_with_its_number(self) -> None:
        now = _snapshot(0, _worker("w1", _task(A0, skipped=5, detail="f.csv: line 3")))
        assert changes(None, now)[-2:] == [
            "task a-0 RUNNING on w1",
            "task a-0 skipped 5 records: f.csv: line 3",
        ]

    def test_nothing_new(self) -> None:
        now = _snapshot(0, _worker("w1", _task(A0, records=1)))
        assert changes(now, replace(now, at=1.0)) == []

    def test_a_task_moves_fails_skips_and_says_something(self) -> None:
        before = _snapshot(0, _worker("w1", _task(A0), _task(A1)), _worker("w2"))
        after = replace(
            _snapshot(
                1,
                _worker("w1", _task(A1, skipped=2, detail="f.csv: line 3"), gen=2),
                _worker("w2", _task(A0, State.FAILED), gen=2),
            ),
            failures={"a-0": "boom"},
        )
        assert changes(before, after) == [
            "rebalance: generation 2",
            "task a-0 FAILED on w2: boom",
            "task a-1 skipped 2 records: f.csv: line 3",
        ]

    def test_what_is_set_aside_is_told_by_its_worker_alone(self) -> None:
        aside = "in/a.csv: not UTF-8"
        task = replace(_task(A0, detail=aside), quarantined=(aside,))
        lines = changes(_snapshot(1.0), _snapshot(2.0, _worker("w1", task)))
        assert "task a-0 RUNNING on w1" in lines
        assert not any(aside in line for line in lines)

    def test_a_worker_falls_silent_and_comes_back(self) -> None:
        up = _snapshot(0, _worker("w1"))
        silent = _snapshot(1, _worker("w1", phase=Phase.SILENT))
        assert changes(up, silent) == ["w1 does not answer (process 7 lives)"]
        assert changes(silent, up) == ["w1 answers again"]

    def test_a_look_that_a_worker_missed_makes_nothing_new(self) -> None:
        up = _snapshot(0, _worker("w1", _task(A0, State.FAILED)))
        late = replace(up, workers=tuple(replace(one, view=None) for one in _with_last(up)))
        assert changes(up, late) == []
        assert changes(late, up) == []

    def test_failures_are_those_of_the_last_answer(self) -> None:
        up = _snapshot(0, _worker("w1", _task(A0, State.FAILED)))
        late = replace(up, workers=tuple(replace(one, view=None) for one in _with_last(up)))
        assert list(failure_lines(late)) == []
        assert failures_at_stop(late, late.connectors) == ("task a-0 FAILED on w1",)
        assert failures_at_stop(late, ()) == ()
        starting = (replace(one, phase=Phase.STARTING) for one in late.workers)
        assert failures_at_stop(replace(late, workers=tuple(starting)), late.connectors) == ()


class TestTimeline:
    def test_spans_follow_owner_and_state_and_leave_gaps(self) -> None:
        timeline = Timeline()
        looks = [
            _snapshot(0, _worker("w1", _task(A0, State.UNASSIGNED))),
            _snapshot(1, _worker("w1", _task(A0))),
            _snapshot(2, _worker("w1", _task(A0))),
            _snapshot(3, _worker("w1")),
            _snapshot(4, _worker("w1"), _worker("w2", _task(A0))),
            _snapshot(5, _worker("w1"), _worker("w2", _task(A0))),
        ]
        for look in looks:
            timeline.observe(look)
        spans = [
            (span.worker, span.state.value, span.start, span.end)
            for span in timeline.spans
            if span.row == ("a", 0)
        ]
        assert spans == [
            ("w1", "UNASSIGNED", 0, 1),
            ("w1", "RUNNING", 1, 2),
            ("w2", "RUNNING", 4, 5),
        ]
        assert timeline.rows() == [("a", -1), ("a", 0)]
        assert list(timeline.workers) == ["w1", "w2"]

    @pytest.mark.parametrize("suffix", ["svg", "png"])
    def test_the_picture(self, tmp_path: Path, suffix: str) -> None:
        timeline = Timeline()
        for second in range(4):
            look = _snapshot(second, _worker("w1", _task(A0), _task(A1, State.FAILED)))
            timeline.observe(look, {"a": 10.0 * second})
        timeline.mark(2.0, "w1", "was killed by SIGKILL")
        path = tmp_path / "deeper" / f"t.{suffix}"
        draw(timeline, path, "the title")
        data = path.read_bytes()
        if suffix == "png":
            assert data.startswith(b"\x89PNG")
        else:
            text = data.decode()
            for word in ("the title", "a-1", "w1 was killed by SIGKILL", "FAILED", "records/s"):
                assert word in text

    def test_rows_and_commits_of_each_task(self, tmp_path: Path) -> None:
        timeline = Timeline()
        #  before we looked; then two runs, the second of which counts anew
        counts = [(50, 5), (60, 6), (90, 9), (90, 9), (20, 1), (30, 2)]
        for second, (rows, commits) in enumerate(counts):
            view = replace(_task(A0, records=rows), commits=commits)
            look = _snapshot(second, _worker("w1", view, _task(A1)))
            timeline.observe(look, {}, {A0: 10.0 * second})
        flow = timeline.tasks.by_task[A0]
        assert str(flow) == "70 rows, 6 commits, peak 50/s"
        assert flow.commits == [(1, 1), (2, 3), (4, 1), (5, 1)]
        draw(timeline, tmp_path / "t.svg", "rows")
        text = (tmp_path / "t.svg").read_text()
        assert "70 rows, 6 commits, peak 50/s" in text
        assert "rows/s, up to the task's peak" in text
        assert text.count(" peak ") == 1, "a task without rows has none"

    def test_a_task_that_begins_while_we_look_is_counted_from_its_beginning(self) -> None:
        timeline = Timeline()
        timeline.observe(_snapshot(0, _worker("w1")))
        timeline.observe(_snapshot(1, _worker("w1", replace(_task(A0, records=7), commits=2))))
        assert str(timeline.tasks.by_task[A0]) == "7 rows, 2 commits, peak 0/s"

    def test_nothing_was_seen(self, tmp_path: Path) -> None:
        draw(Timeline(), tmp_path / "t.svg", "nothing")
        assert (tmp_path / "t.svg").exists()


class TestDisplay:
    def _show(
        self,
        height: int = 40,
        tasks: int = 2,
        detail: str = "",
        ui: str | None = None,
        batch: BatchDone | None = None,
    ) -> str:
        out = io.StringIO()
        console = Console(
            file=out, force_terminal=True, width=100, height=height, color_system=None
        )
        display = LiveDisplay(console, Heading("p.toml", "/data", "spark"))
        ids = tuple(TaskId("a", n) for n in range(tasks))
        views = [replace(_task(task, records=50, detail=detail), batch=batch) for task in ids[:-1]]
        snapshot = _snapshot(1.0, _worker("w1", *views), _worker("w2", phase=Phase.SILENT))
        connector = replace(snapshot.connectors[0], tasks=ids)
        snapshot = replace(snapshot, connectors=(connector,), spark_ui=ui)
        rates = Rates()
        rates.update(0.0, dict.fromkeys(ids, 0))
        rates.update(1.0, dict.fromkeys(ids, 50))
        display.message("hello")
        display.show(snapshot, rates, ("a-1 has no owner", "more"))
        out.seek(0)
        out.truncate()
        display.close()
        return out.getvalue()

    def test_what_runs_where(self) -> None:
        shown = self._show()
        for words in (
            "headgate up p.toml",
            "w1  up",
            "leader",
            "no answer for 0 s",
            "a-0",
            "UNASSIGNED",
            "hello",
            "waits for: a-1 has no owner and 1 more",
        ):
            assert words in shown, shown

    def test_the_pages_of_spark(self) -> None:
        assert "Spark's pages" not in self._show()
        assert "Spark's pages http://127.0.0.1:4040" in self._show(ui="http://127.0.0.1:4040")

    def test_the_last_batch_of_a_sink(self) -> None:
        batch = BatchDone(3, 200_000, 2, 1_900, 1_000)
        snapshot = _snapshot(1.0, _worker("w1", replace(_task(A0), batch=batch)))
        told = "batch 3: 200,000 records in 2 files took 1.9 s, next commit after 1.9 s"
        assert told in progress_line(snapshot, Rates())
        assert "batch" not in progress_line(_snapshot(1.0, _worker("w1", _task(A0))), Rates())
        assert told[:20] in self._show(batch=batch)

    def test_tasks_that_do_not_run_are_shown_first_where_room_is_short(self) -> None:
        shown = self._show(height=24, tasks=60)
        assert "a-59" in shown
        assert "more tasks" in shown
        assert len(shown.splitlines()) < 60

    def test_a_long_reason_gives_way_to_what_stands_beside_it(self) -> None:
        shown = self._show(detail="a reason that is long " * 20)
        row = next(line for line in shown.splitlines() if line.startswith("  a-0"))
        assert row.split()[:5] == ["a-0", "RUNNING", "w1", "50", "50"]
        assert len(row) <= 100
        assert row.rstrip().endswith("…")

    def test_plain_lines_come_when_something_changed(self) -> None:
        out = io.StringIO()
        display = PlainDisplay(out)
        rates = Rates()
        for at in (0.0, 1.0, 6.0, 12.0):
            display.show(_snapshot(at, _worker("w1")), rates, ())
        lines = out.getvalue().splitlines()
        assert len(lines) == 1  # nothing moves: said once
        assert lines[0].endswith("1 of 1 worker up; a 0 records, 0/s; 0 rebalances")


class TestPlannedChanges:
    def _state(self, **configs: dict[str, str | None]) -> ConfigState:
        events = [
            ConnectorConfigured(offset, name, config)
            for offset, (name, config) in enumerate(configs.items())
        ]
        return fold(ConfigState(), events)

    def test_new_changed_equal_and_no_longer_named(self) -> None:
        state = self._state(same={"x": "1"}, other={"x": "1"}, old={"x": "1"})
        named = {"new": {"x": "1"}, "same": {"x": "1"}, "other": {"x": "2"}}
        plan, said = planned_changes(state, named, prune=False)
        assert [change.words for change in plan] == [
            "making connector new",
            "changing connector other",
        ]
        assert plan[1].call == PutConnectorConfig("other", {"x": "2"})
        assert said == ["connector old is not in the pipeline file and stays (--prune deletes)"]

    def test_prune(self) -> None:
        plan, said = planned_changes(self._state(old={"x": "1"}), {}, prune=True)
        assert [change.call for change in plan] == [DeleteConnector("old")]
        assert said == []

    def test_a_connector_somebody_paused_stays_so_and_is_told(self) -> None:
        state = self._state(a={"x": "1"})
        state = fold(state, [TargetStateChanged(5, "a", TargetState.PAUSED)])
        plan, said = planned_changes(state, {"a": {"x": "1"}}, prune=False)
        assert plan == []
        assert said == ["connector a is as in the file and PAUSED, as somebody asked"]


def test_warnings_of_a_worker_without_what_precedes_them() -> None:
    lines = [
        "2026-01-01 10:00:00,000 INFO headgate.task: fine",
        "2026-01-01 10:00:00,000 WARNING headgate.task: a-0: skipped one: f.csv",
        "2026-01-01 10:00:00,000 ERROR x: bad",
        "Traceback (most recent call last):",
    ]
    assert warnings_of(lines) == ["a-0: skipped one: f.csv", "bad"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "was killed by SIGKILL"),
        (3, "ended with exit code 3"),
        (-63, "was killed by signal 63"),
    ],
)
def test_how_a_process_ended(code: int, words: str) -> None:
    assert how_it_ended(code).startswith(words)


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        (None, ""),
        ("Traceback (most recent call last):\n  File x\nValueError: bad\n", "ValueError: bad"),
        ("org.x.ConnectException: bad\n\tat y", "org.x.ConnectException: bad"),
    ],
)
def test_the_line_of_a_trace_that_says_what_is_wrong(trace: str | None, words: str) -> None:
    assert first_words(trace) == words


def test_looks_leave_a_core_to_others_however_much_there_is_to_see() -> None:
    """With 2,000 tasks a look took a second, and the next one came 0.1 s after it."""
    assert rest_after(0.0) == BEAT_S / 5
    for cpu_s in (0.2, 1.0, 5.0):
        assert cpu_s / (cpu_s + rest_after(cpu_s)) <= 0.2
    # A worker that tells of 2,000 tasks decides nothing meanwhile.
    told_s = 2_000 * TOLD_S
    assert told_s / (told_s + rest_after(0.0, 2_000)) <= 0.2
