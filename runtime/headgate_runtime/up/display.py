"""What the user sees while the cluster runs: a live table, or plain lines without a terminal."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.herder.messages import TaskView
from headgate.ids import State, TaskId
from headgate_runtime.up.rates import Rates
from headgate_runtime.up.snapshot import ConnectorSnapshot, Phase, Snapshot, WorkerSnapshot

PROGRESS_EVERY_S = 5.0
MESSAGES_SHOWN = 8
LINES_BESIDE_TASKS = 15
"""Lines of a frame that are no rows of tasks: the heads and the messages."""


@dataclass(frozen=True, slots=True)
class Heading:
    """The part of the display that stays the same while the cluster runs."""

    pipeline: str
    data: str
    runner: str


class Display(Protocol):
    def message(self, text: str) -> None:
        """Show that something happened just now."""
        ...

    def show(self, snapshot: Snapshot, rates: Rates, awaited: Sequence[str]) -> None:
        """Show the present state. `awaited` is what `--until-idle` still waits for."""
        ...

    def close(self) -> None: ...


# -- plain lines --


class PlainDisplay:
    """Display of events as lines, with a line of progress every few seconds while something
    moves."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._next_progress = 0.0
        self._last_progress = ""

    def message(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=self._out, flush=True)

    def show(self, snapshot: Snapshot, rates: Rates, awaited: Sequence[str]) -> None:
        if snapshot.at < self._next_progress:
            return
        self._next_progress = snapshot.at + PROGRESS_EVERY_S
        line = progress_line(snapshot, rates)
        if awaited:
            line += f"; waits: {awaited[0]}" + (f" (+{len(awaited) - 1})" if awaited[1:] else "")
        if line != self._last_progress:
            self.message(line)
        self._last_progress = line

    def close(self) -> None: ...


def progress_line(snapshot: Snapshot, rates: Rates) -> str:
    up = sum(worker.phase is Phase.UP for worker in snapshot.workers)
    parts = [f"{up} of {counted(len(snapshot.workers), 'worker')} up"]
    for connector in snapshot.connectors:
        flow = _flow(connector, snapshot, rates)
        lag = f", lag {connector.lag:,}" if connector.kind == "sink" else ""
        batches = _batches(connector, snapshot)
        parts.append(f"{connector.name} {flow[1]:,} records, {flow[0]:,.0f}/s{lag}{batches}")
    parts.append(counted(snapshot.rebalances, "rebalance"))
    return "; ".join(parts)


def _batches(connector: ConnectorSnapshot, snapshot: Snapshot) -> str:
    """Return the last batch of each task, if its tasks commit planned batches."""
    owners = snapshot.task_owners()
    found = [view.batch for task in connector.tasks for _, view in owners.get(task, [])]
    return "".join([f", {batch}" for batch in found if batch is not None])


def _flow(connector: ConnectorSnapshot, snapshot: Snapshot, rates: Rates) -> tuple[float, int]:
    """Return the records per second and the records so far of all tasks of a connector."""
    return (
        sum(rates.per_second(task, snapshot.at) for task in connector.tasks),
        sum(rates.total(task) for task in connector.tasks),
    )


def connector_rates(snapshot: Snapshot, rates: Rates) -> dict[str, float]:
    return {one.name: _flow(one, snapshot, rates)[0] for one in snapshot.connectors}


# -- the live table --

_STATE_STYLES = {
    State.RUNNING: "green",
    State.FAILED: "bold red",
    State.PAUSED: "yellow",
    State.STOPPED: "yellow",
    State.UNASSIGNED: "dim",
    State.RESTARTING: "cyan",
}
_PHASE_STYLES = {
    Phase.UP: "green",
    Phase.STARTING: "cyan",
    Phase.SILENT: "bold yellow",
    Phase.WAITING: "bold yellow",
    Phase.GIVEN_UP: "bold red",
}


class LiveDisplay:
    """Display of a table that is redrawn in place. The last one stays after `close`."""

    def __init__(self, console: Console, heading: Heading) -> None:
        self._console = console
        self._heading = heading
        self._started = time.monotonic()
        self._messages: deque[Text] = deque(maxlen=MESSAGES_SHOWN)
        self._last: tuple[Snapshot, Rates, Sequence[str]] | None = None
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def message(self, text: str) -> None:
        line = Text(f"{time.strftime('%H:%M:%S')} ", style="dim")
        line.append(text, style="default")
        self._messages.append(line)
        self._draw()

    def show(self, snapshot: Snapshot, rates: Rates, awaited: Sequence[str]) -> None:
        self._last = (snapshot, rates, awaited)
        self._draw()

    def close(self) -> None:
        self._draw()
        self._live.stop()

    def _draw(self) -> None:
        elapsed = time.monotonic() - self._started
        self._live.update(self._frame(elapsed), refresh=True)

    def _frame(self, elapsed_s: float) -> RenderableType:
        parts: list[RenderableType] = [Text()]
        if self._last is not None:
            snapshot, rates, awaited = self._last
            room = max(4, self._console.height - LINES_BESIDE_TASKS - len(snapshot.workers))
            parts = [
                _head(self._heading, snapshot, elapsed_s),
                _workers_table(snapshot),
                Text(),
                _work_table(snapshot, rates, room),
            ]
            if awaited:
                text = f"waits for: {awaited[0]}" + (
                    f" and {len(awaited) - 1} more" if awaited[1:] else ""
                )
                parts.append(Text(text, style="dim", no_wrap=True, overflow="ellipsis"))
        if self._messages:
            parts.append(Text())
        for line in self._messages:
            shown = line.copy()
            shown.no_wrap, shown.overflow = True, "ellipsis"
            parts.append(shown)
        return Group(*parts)


def _head(heading: Heading, snapshot: Snapshot, elapsed_s: float) -> Text:
    minutes, seconds = divmod(int(elapsed_s), 60)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"headgate up {heading.pipeline}", style="bold")
    text.append(f"   {minutes:02}:{seconds:02}   log {heading.data}   runner {heading.runner}")
    text.append(f"   rebalances {snapshot.rebalances}   Ctrl-C stops", style="dim")
    if snapshot.spark_ui is not None:
        text.append(f"\nSpark's pages {snapshot.spark_ui}", style="dim")
    return text


def _workers_table(snapshot: Snapshot) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    leaders = {view.leader for _, view in snapshot.views() if view.leader}
    for worker in snapshot.workers:
        view = worker.view or worker.last_view
        leads = view is not None and view.member_id in leaders
        table.add_row(
            worker.name,
            Text(worker.phase, style=_PHASE_STYLES[worker.phase]),
            f"pid {worker.pid}" if worker.pid is not None else "",
            "leader" if leads and worker.phase is Phase.UP else "",
            Text(_worker_note(worker), style="dim", no_wrap=True, overflow="ellipsis"),
        )
    return table


def _worker_note(worker: WorkerSnapshot) -> str:
    if worker.phase is Phase.SILENT:
        return f"no answer for {worker.silent_s:.0f} s"
    if worker.phase is Phase.UP and worker.view is not None:
        held = ", ".join(
            (
                counted(len(worker.view.connectors), "connector"),
                counted(len(worker.view.tasks), "task"),
            )
        )
        again = f", started {worker.starts} times" if worker.starts > 1 else ""
        pending = f"; {', '.join(worker.view.pending)}" if worker.view.pending else ""
        return held + again + pending
    return worker.note


def counted(number: int, what: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _work_table(snapshot: Snapshot, rates: Rates, room: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("connector / task", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("worker", no_wrap=True)
    table.add_column("records/s", justify="right", no_wrap=True)
    table.add_column("records", justify="right", no_wrap=True)
    table.add_column("lag", justify="right", no_wrap=True)
    table.add_column("")  # the column that shrinks on a narrow terminal
    owners, task_owners = snapshot.connector_owners(), snapshot.task_owners()
    room -= len(snapshot.connectors)
    for connector in snapshot.connectors:
        where = owners.get(connector.name, [])
        per_second, total = _flow(connector, snapshot, rates)
        table.add_row(
            Text(connector.name, style="bold"),
            _state(where[0][1] if where else State.UNASSIGNED),
            ", ".join(worker for worker, _ in where) or "-",
            f"{per_second:,.0f}",
            f"{total:,}",
            f"{connector.lag:,}" if connector.kind == "sink" else "",
            _cut(_note(connector, snapshot), "dim"),
        )
        shown = _rows_shown(connector, task_owners, room)
        room -= len(shown)
        for task in shown:
            _add_task(table, task, task_owners.get(task, []), snapshot, rates)
        hidden = len(connector.tasks) - len(shown)
        if hidden:
            table.add_row(Text(f"  … {hidden} more tasks", style="dim"))
    return table


def _rows_shown(
    connector: ConnectorSnapshot,
    owners: Mapping[TaskId, Sequence[tuple[str, TaskView]]],
    room: int,
) -> list[TaskId]:
    """Return all tasks if there is room for them. Otherwise those that do not run come first."""
    if len(connector.tasks) <= room:
        return list(connector.tasks)

    def running(task: TaskId) -> bool:
        return any(view.state is State.RUNNING for _, view in owners.get(task, []))

    return sorted(sorted(connector.tasks, key=running)[: max(0, room)])


def _add_task(
    table: Table,
    task: TaskId,
    owners: Sequence[tuple[str, TaskView]],
    snapshot: Snapshot,
    rates: Rates,
) -> None:
    view = owners[0][1] if owners else None
    state = view.state if view is not None else State.UNASSIGNED
    detail = snapshot.failures.get(str(task), "") if state is State.FAILED else ""
    if view is not None and not detail:
        notes = [
            "idle" if view.idle else "",
            f"{view.skipped:,} skipped" if view.skipped else "",
            f"started anew {view.attempts}x" if view.attempts else "",
            view.detail,
            "" if view.batch is None else str(view.batch),
        ]
        detail = ", ".join(note for note in notes if note)
    table.add_row(
        f"  {task}",
        _state(state),
        ", ".join(worker for worker, _ in owners) or "-",
        f"{rates.per_second(task, snapshot.at):,.0f}",
        f"{rates.total(task):,}",
        "",
        _cut(detail, "red" if state is State.FAILED else "dim"),
    )


def _cut(text: str, style: str) -> Text:
    """Return a text that is cut to fit in the line."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _state(state: State) -> Text:
    return Text(state, style=_STATE_STYLES[state])


def _note(connector: ConnectorSnapshot, snapshot: Snapshot) -> str:
    if connector.name in snapshot.failures:
        return snapshot.failures[connector.name]
    notes = [
        connector.kind,
        "" if connector.committed else "no task configs yet",
        "" if connector.named else "not in the pipeline file",
    ]
    return ", ".join(note for note in notes if note)
