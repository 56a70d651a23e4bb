"""The changes between two snapshots, as lines for people."""

from collections.abc import Iterator

from headgate.herder.messages import TaskView
from headgate.ids import State
from headgate_runtime.up.snapshot import Phase, Snapshot, WorkerSnapshot


def changes(previous: Snapshot | None, snapshot: Snapshot) -> list[str]:
    """Return one line for each change of interest, in a fixed order.

    A worker that did not answer a look is no change. Its state is compared with its last known one.
    """
    previous = None if previous is None else previous.known()
    return [
        *_workers(previous, snapshot),
        *_group(previous, snapshot),
        *_connectors(previous, snapshot),
        *_tasks(previous, snapshot),
    ]


def _workers(previous: Snapshot | None, snapshot: Snapshot) -> Iterator[str]:
    before = {worker.name: worker for worker in previous.workers} if previous else {}
    for worker in snapshot.workers:
        old = before.get(worker.name)
        # Ends and restarts of processes are reported by the code that restarts them, with the
        # reason.
        if worker.phase is Phase.UP and (old is None or old.phase is not Phase.UP):
            back = "answers again" if old is not None and old.phase is Phase.SILENT else "is up"
            yield f"{worker.name} {back}"
        elif worker.phase is Phase.SILENT and (old is None or old.phase is not Phase.SILENT):
            yield f"{worker.name} does not answer (process {_pid(worker)} lives)"


def _group(previous: Snapshot | None, snapshot: Snapshot) -> Iterator[str]:
    old = previous.generation if previous is not None else None
    if snapshot.generation is not None and snapshot.generation != old:
        yield f"rebalance: generation {snapshot.generation}"


def _connectors(previous: Snapshot | None, snapshot: Snapshot) -> Iterator[str]:
    before = dict(previous.views()) if previous is not None else {}
    news: list[tuple[str, str, State]] = []
    for worker, view in snapshot.views():
        old = before.get(worker)
        if old is None or old.connectors is not view.connectors:
            known = {} if old is None else old.connectors
            states = view.connectors.items()
            news += [(name, worker, now) for name, now in states if known.get(name) is not now]
    for name, worker, state in sorted(news, key=lambda one: one[0]):
        yield f"connector {name} {state} on {worker}{_why(snapshot, name, state, '')}"


def _tasks(previous: Snapshot | None, snapshot: Snapshot) -> Iterator[str]:
    """Yield the changes of tasks. Of thousands, few change between two looks: the others are the
    same objects."""
    before = dict(previous.views()) if previous is not None else {}
    news: list[tuple[str, TaskView, TaskView | None]] = []
    for worker, view in snapshot.views():
        old = before.get(worker)
        if old is None or old.tasks is not view.tasks:
            known = {} if old is None else {each.task: each for each in old.tasks}
            pairs = [(worker, each, known.get(each.task)) for each in view.tasks]
            news += [pair for pair in pairs if pair[1] is not pair[2]]
    for worker, now, then in sorted(news, key=lambda one: one[1].task):
        yield from _task(snapshot, worker, now, then)


def _task(snapshot: Snapshot, worker: str, view: TaskView, old: TaskView | None) -> Iterator[str]:
    task = view.task
    state, detail, skipped = (None, "", 0) if old is None else (old.state, old.detail, old.skipped)
    more = view.skipped > skipped
    told = view.detail in view.quarantined  # by a warning of its worker
    if view.state is not state:
        silent = (more or told) and view.state is not State.FAILED
        about = "" if silent else view.detail
        why = _why(snapshot, str(task), view.state, about)
        yield f"task {task} {view.state} on {worker}{why}"
    if more:
        count = view.skipped - skipped
        what = "1 record" if count == 1 else f"{count:,} records"
        yield f"task {task} skipped {what}: {view.detail}"
    elif view.state is state and view.detail != detail and view.detail and not told:
        yield f"task {task}: {view.detail}"


def _why(snapshot: Snapshot, name: str, state: State, detail: str) -> str:
    reason = snapshot.failures.get(name, "") or detail if state is State.FAILED else detail
    return f": {reason}" if reason else ""


def _pid(worker: WorkerSnapshot) -> str:
    return str(worker.pid) if worker.pid is not None else "?"
