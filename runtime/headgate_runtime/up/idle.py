"""When ``--until-idle`` may end, decided by a pure function of two snapshots.

The rule: no rebalance, delay or reconfiguration is pending, all tasks are RUNNING and all sources
are idle. Then all sinks have reached the end offsets that were taken after that. This must be so
twice in a row.

PAUSED and STOPPED count as idle. FAILED connectors and tasks do not hold up the end: the others are
awaited, and then the failures are reported.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from headgate.ids import State, TargetState
from headgate_runtime.up.snapshot import ConnectorSnapshot, Phase, Snapshot

QUIET_MS = 30_000
"""Time without a record after which a source that is not idle is named."""
QUARANTINE_LINES = 20
"""Most inputs of one task that are named. The rest are counted."""


class Outcome(StrEnum):
    WAITING = "waiting"
    IDLE = "idle"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: Outcome
    reasons: tuple[str, ...]
    """What is awaited if WAITING. What failed, and why, if FAILED."""


def idle_verdict(snapshot: Snapshot, previous: Snapshot | None) -> Verdict:
    """Return whether all work has come to rest. `previous` is the snapshot before, None at
    first."""
    failures = tuple(failure_lines(snapshot))
    awaited = tuple(_awaited(snapshot))
    if awaited:
        if all(worker.phase is Phase.GIVEN_UP for worker in snapshot.workers):
            return Verdict(Outcome.FAILED, ("no worker is left", *failures))
        return Verdict(Outcome.WAITING, awaited)
    if previous is None or any(_awaited(previous)):
        return Verdict(Outcome.WAITING, ("a second look",))
    moved = tuple(_moved(snapshot, previous))
    if moved:
        return Verdict(Outcome.WAITING, moved)
    return Verdict(Outcome.FAILED if failures else Outcome.IDLE, failures)


def _awaited(snapshot: Snapshot) -> Iterator[str]:
    """Yield what one snapshot shows to be under way."""
    yield from snapshot.applying
    for worker in snapshot.workers:
        if worker.phase in (Phase.STARTING, Phase.WAITING):
            yield f"{worker.name} is {worker.phase}"
    views = snapshot.views()
    if not views:
        yield "no worker answers"
    for name, view in views:
        if not view.settled:
            yield f"{name}: {', '.join(view.pending) or 'not settled'}"
        elif view.config_offset < snapshot.config_offset:
            yield (
                f"{name} has read the config topic to {view.config_offset}, "
                f"its end is {snapshot.config_offset}"
            )
        elif not view.leader:
            yield f"{name} knows no leader"
    # A worker that is behind in the group may believe that it owns what it has lost.
    generations = {view.generation for _, view in views}
    if len(generations) > 1:
        yield f"workers are in generations {', '.join(map(str, sorted(generations)))}"
    for connector in snapshot.connectors:
        yield from _awaited_of(connector, snapshot)


def _awaited_of(connector: ConnectorSnapshot, snapshot: Snapshot) -> Iterator[str]:
    owners = snapshot.connector_owners().get(connector.name, [])
    if len(owners) != 1:
        yield f"{connector.name} has {len(owners) or 'no'} owner{'s' if len(owners) > 1 else ''}"
        return
    state = owners[0][1]
    if state is State.FAILED:
        return
    if state.value != _wanted(connector.target_state):
        yield f"{connector.name} is {state}"
    if connector.target_state is TargetState.STOPPED:
        return
    if not connector.committed:
        yield f"{connector.name} has no task configs yet"
    failed = yield from _awaited_tasks(connector, snapshot)
    caught_up = failed or connector.target_state is TargetState.PAUSED
    if connector.kind == "sink" and not caught_up and connector.lag:
        yield f"{connector.name} has {connector.lag:,} records to go"


def _awaited_tasks(connector: ConnectorSnapshot, snapshot: Snapshot) -> Generator[str, None, bool]:
    """Yield what is awaited of a connector's tasks. Return whether one of them FAILED."""
    task_owners = snapshot.task_owners()
    failed = False
    for task in connector.tasks:
        owners = task_owners.get(task, [])
        if len(owners) != 1:
            yield f"{task} has {len(owners) or 'no'} owner{'s' if len(owners) > 1 else ''}"
            continue
        worker, view = owners[0]
        if view.state is State.FAILED:
            failed = True
        elif view.state.value != _wanted(connector.target_state):
            yield f"{task} is {view.state}"
        elif (
            connector.kind == "source"
            and connector.target_state is TargetState.STARTED
            and not view.idle
        ):
            yield f"{task} has more to read{_quiet(snapshot.view_of(worker).quiet_ms(view))}"
    return failed


def _quiet(quiet_ms: int | None) -> str:
    """Return words about a task that has not moved for long: a hanging `poll` does not report
    itself."""
    if quiet_ms is None or quiet_ms < QUIET_MS:
        return ""
    return f", and has moved nothing for {quiet_ms // 1000} s"


def _wanted(target: TargetState) -> str:
    return State.RUNNING.value if target is TargetState.STARTED else target.value


def _moved(snapshot: Snapshot, previous: Snapshot) -> Iterator[str]:
    """Yield what changed between two snapshots that each looked idle."""
    before = {connector.name: connector for connector in previous.connectors}
    for connector in snapshot.connectors:
        old = before.get(connector.name)
        if old is None:
            yield f"{connector.name} is new"
        elif dict(connector.ends) != dict(old.ends):
            yield f"{connector.name}: new records in its topics"
        elif dict(connector.consumed) != dict(old.consumed):
            # Only a sink with a FAILED task can get here: its other tasks go on.
            yield f"{connector.name} is moving on"
    then = {view.generation for _, view in previous.views()}
    if {view.generation for _, view in snapshot.views()} != then:
        yield "a rebalance took place"
    if snapshot.config_offset != previous.config_offset:
        yield "the config topic has grown"


def failure_lines(snapshot: Snapshot) -> Iterator[str]:
    """Yield what was refused, given up, FAILED or quarantined, a line each.

    Until the next round, workers still have the tasks of a deleted connector. These are left out.
    """
    configured = {connector.name for connector in snapshot.connectors}
    yield from snapshot.refused
    for worker in snapshot.workers:
        if worker.phase is Phase.GIVEN_UP:
            yield f"{worker.name} was given up: {worker.note}"
    for name, owners in sorted(snapshot.connector_owners().items()):
        for owner, state in owners:
            if state is State.FAILED and name in configured:
                yield _failure(f"connector {name}", owner, snapshot.failures.get(name, ""))
    for task, task_owners in sorted(snapshot.task_owners().items()):
        for owner, view in task_owners:
            if task.connector not in configured:
                continue
            if view.state is State.FAILED:
                reason = snapshot.failures.get(str(task), "") or view.detail
                yield _failure(f"task {task}", owner, reason)
            else:
                yield from quarantine_lines(str(task), view.quarantined)


def failures_at_stop(
    snapshot: Snapshot, connectors: tuple[ConnectorSnapshot, ...]
) -> tuple[str, ...]:
    """Return the failures in the last look. For a worker that missed it, the look before counts.
    `connectors` are the present ones: failures of connectors deleted since are left out."""
    return tuple(failure_lines(replace(snapshot.known(), connectors=connectors)))


def quarantine_lines(task: str, quarantined: Sequence[str]) -> Iterator[str]:
    """Yield what a task has quarantined, a line each."""
    shown = quarantined[:QUARANTINE_LINES]
    for one in shown:
        yield f"task {task} set aside {one}"
    if more := len(quarantined) - len(shown):
        yield f"task {task} set aside {more:,} more; its worker's log names them"


def _failure(what: str, worker: str, reason: str) -> str:
    return f"{what} FAILED on {worker}" + (f": {reason}" if reason else "")
