"""What must hold of the restart policy, checked as each worker decides.

The contract is that of docs/run/settings.md, computed anew here, so that an error in
`headgate.connector.restart_policy` is not shared. Starts of a task or connector on a new owner are
no restarts: the group assigned it. What is counted there goes on from what the status topic says,
also where the connector is paused at first.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NoReturn

from headgate.herder.messages import (
    Call,
    DeleteConnector,
    Effect,
    RestartConnector,
    RestartTask,
    StartConnector,
    WriteStatus,
)
from headgate.ids import State, TargetState, TaskId
from headgate.simulation.world import Worker
from headgate.task.messages import TaskSpec
from headgate.topics.config_events import Config
from headgate.topics.status import (
    ConnectorStatusReported,
    Status,
    TaskStatusReported,
    decode_status,
)

BUDGET: Final = 3
BACKOFF_MS: Final = 50
BACKOFF_MAX_MS: Final = 500
"""The second wait, of 300 ms, is on the curve and below this; the third would be 600 ms."""
QUIET_MS: Final = 900
EXCLUDED: Final = "wrong password"
"""An error that the policy does not name."""
INCLUDED: Final = "poll raised"
SMALL_BUDGET: Final[Mapping[str, str]] = MappingProxyType(
    {
        "headgate.restart.max": str(BUDGET),
        "headgate.restart.backoff.ms": str(BACKOFF_MS),
        "headgate.restart.backoff.max.ms": str(BACKOFF_MAX_MS),
        "headgate.restart.quiet.ms": str(QUIET_MS),
        "headgate.restart.errors": INCLUDED,
    }
)
NO_TASK_CONFIGS: Final = "gave no task configs"
"""Such a connector is asked again for ever, whatever its budget."""
ASKED_MS: Final = 20_000
"""How long after it was asked a user's restart may still be carried out."""


@dataclass(slots=True)
class _Seen:
    """One task or connector on one worker, as its statuses tell."""

    count: int = 0
    """Automatic restarts in a row; never more than there were."""
    running_ms: int | None = None
    failed_ms: int | None = None
    """When it failed, while it is as it failed."""
    error: str = ""
    left: bool = False
    """It was given up, or is stopped."""
    commit: int | None = None
    """The generation of the run's task configs."""
    config: Config | None = None
    """What a connector's run was started with."""


class RestartChecks:
    def __init__(
        self,
        now_ms: Callable[[], int],
        told: Callable[[TaskId | str], int],
        broken: Callable[[str, str], NoReturn],
    ) -> None:
        """
        Args:
            told: restarts in a row by the last status in the log.
        """
        self._now_ms = now_ms
        self._told = told
        self._broken = broken
        self._seen: dict[tuple[str, TaskId | str], _Seen] = {}
        self._asked: dict[str, int] = {}
        """When a user last asked for a restart, by connector."""
        self._deleted: dict[str, int] = {}
        """When a user last asked for its deletion. A namesake may be made before it is seen."""
        self.met: Counter[str] = Counter()
        """How often each situation was met."""

    def user_asked(self, call: Call) -> None:
        if isinstance(call, RestartTask):
            self._asked[call.task.connector] = self._now_ms()
        elif isinstance(call, RestartConnector):
            self._asked[call.name] = self._now_ms()
        elif isinstance(call, DeleteConnector):
            self._deleted[call.name] = self._now_ms()

    def decided(self, worker: str, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, WriteStatus) and effect.value is not None:
                event = decode_status(effect.key, effect.value)
                if isinstance(event, TaskStatusReported):
                    self._reported(worker, event.task, event.status)
                elif isinstance(event, ConnectorStatusReported):
                    self._connector_reported(worker, event.connector, event.status)

    def looked_at(self, worker: Worker) -> None:
        """After each decision, before its effects: what a connector's budget begins anew for, as
        this worker has read the log, and which connectors it has, or has no more."""
        state, held = worker.herder.state, worker.herder.view().connectors
        for name in held:
            entry = state.entry(name)
            if entry is not None and entry.config is not None and _has_budget(entry.config):
                self._seen.setdefault((worker.url, name), _Seen(left=True))
        for (url, work), seen in self._seen.items():
            if url != worker.url or not isinstance(work, str):
                continue
            entry = state.entry(work)
            stopped = state.target_state(work) is TargetState.STOPPED
            if stopped or entry is None or entry.config != seen.config:
                seen.count, seen.failed_ms = 0, None
            if work not in held:
                seen.left, seen.failed_ms = True, None

    def connector_started(self, worker: str, effect: StartConnector) -> None:
        name = effect.connector
        if not _has_budget(effect.config):
            return
        seen = self._seen.setdefault((worker, name), _Seen(left=True))
        if seen.left:
            seen.count = self._told(name)
            self.met["connector: count taken over"] += seen.count > 0
        elif seen.failed_ms is not None and not self._user_may_have(name):
            self._broken("14 budget", f"{name} is started as it failed, and nothing is counted")
        if seen.config != effect.config:
            seen.count = 0
        seen.left, seen.config = False, effect.config
        seen.running_ms = seen.failed_ms = None

    def _connector_reported(self, worker: str, name: str, status: Status) -> None:
        seen = self._seen.get((worker, name))
        if seen is None:
            return
        if status.state is State.RUNNING:
            if seen.running_ms is None:  # else it is said again
                seen.running_ms = self._now_ms()
        elif status.state is State.UNASSIGNED:
            self._check_count(seen, name, status)
            seen.left, seen.failed_ms = True, None
        elif status.state is State.PAUSED:
            if seen.left:  # it has not run here since it was assigned
                seen.count = self._told(name)
                self.met["connector: count taken over by one that is paused"] += seen.count > 0
            self._check_count(seen, name, status)
        elif status.state is State.FAILED and NO_TASK_CONFIGS in (status.trace or ""):
            self.met["connector: no task configs"] += 1
            self._check_count(seen, name, status)
        elif status.state is State.FAILED:
            self._failed(seen, name, status)
        elif status.state is State.RESTARTING:
            self._restarting(seen, name, status)

    def _check_count(self, seen: _Seen, name: str, status: Status) -> None:
        """A status that tells of no failure has the count, too: the next owner goes on from it."""
        if status.restarts < seen.count and not self._user_may_have(name):
            text = f"{name} counts {status.restarts} restarts, there were {seen.count}"
            self._broken("14 budget", f"{text}, as its status {status.state} says")

    def started(self, worker: str, spec: TaskSpec) -> None:
        """A run begins. On a new owner the count goes on from the status topic's."""
        place, told = (worker, spec.task), self._told(spec.task)
        if place not in self._seen:
            self._seen[place] = _Seen(told)
            self.met["count taken over"] += told > 0
        seen = self._seen[place]
        if seen.commit != spec.commit_offset and seen.commit is not None:
            seen.count = 0  # new task configs
        elif seen.left:
            seen.count = told
        seen.left = False
        seen.commit = spec.commit_offset
        seen.running_ms = seen.failed_ms = None

    def _reported(self, worker: str, task: TaskId, status: Status) -> None:
        seen = self._seen.get((worker, task))
        if seen is None:
            return  # it has not run here
        if status.state is State.UNASSIGNED:
            seen.left, seen.failed_ms = True, None
        elif status.state is State.RUNNING:
            seen.running_ms = self._now_ms()
        elif status.state is State.FAILED:
            self._failed(seen, task, status)
        elif status.state is State.RESTARTING:
            self._restarting(seen, task, status)

    def _failed(self, seen: _Seen, work: TaskId | str, status: Status) -> None:
        if seen.failed_ms is not None and (status.restarts, status.trace) == (
            seen.count,
            seen.error,
        ):
            return  # said again, as where another worker's record hid it
        now, since = self._now_ms(), seen.running_ms
        if since is not None and now - since >= QUIET_MS:
            self._meet("count begun anew after quiet", work, seen.count > 0)
            seen.count = 0
            if status.restarts:
                self._broken("14 quiet", f"{work} failed after quiet and counts {status.restarts}")
        if status.restarts < seen.count and not self._user_may_have(work):
            text = f"{work} counts {status.restarts} restarts, there were {seen.count}"
            self._broken("14 budget", text)
        # A user's restart, or new task configs, may have made it less.
        seen.count, seen.failed_ms, seen.error = status.restarts, now, status.trace or ""
        self._check_note(seen, work)

    def _check_note(self, seen: _Seen, work: TaskId | str) -> None:
        note = seen.error.partition("\n")[0]
        left = BUDGET - seen.count
        if EXCLUDED in seen.error:
            self._meet("error that is excluded", work)
        elif left <= 0:
            self._meet("budget used up", work)
            if not note.endswith("none is left. Mend the cause, then restart it."):
                self._broken("14 attempts left", f"{work} has none, its status says {note!r}")
        elif not note.endswith(f"restarts left: {left}."):
            self._broken("14 attempts left", f"{work} has {left}, its status says {note!r}")

    def _restarting(self, seen: _Seen, work: TaskId | str, status: Status) -> None:
        failed_ms, seen.failed_ms = seen.failed_ms, None
        if not status.restarts and self._user_may_have(work):
            if failed_ms is not None and seen.count >= BUDGET:
                self._meet("user's restart when it was used up", work)
            seen.count = 0
            return
        if failed_ms is None:
            return  # lost or fenced: not by the policy
        if status.restarts == seen.count and self._user_may_have(work):
            self._broken("14 fresh budget", f"{work} counts {seen.count} after a user's restart")
        self._meet("automatic restart", work)
        number = seen.count + 1
        if EXCLUDED in seen.error:
            self._broken("14 excluded errors", f"{work} is restarted after {EXCLUDED}")
        if number > BUDGET:
            self._broken("14 budget", f"{work} is restarted {number} times in a row")
        if status.restarts != number:
            text = f"{work} counts {status.restarts}, this is restart {number}"
            self._broken("14 budget", text)
        wait = min((number * number + number) * BACKOFF_MS, BACKOFF_MAX_MS)
        self._meet("longest wait", work, wait == BACKOFF_MAX_MS)
        waited = self._now_ms() - failed_ms
        if waited < wait:
            self._broken("14 backoff", f"{work} is restarted after {waited} ms, not {wait}")
        seen.count = number

    def _user_may_have(self, work: TaskId | str) -> bool:
        times = [self._asked.get(work.connector if isinstance(work, TaskId) else work)]
        if isinstance(work, str):
            times.append(self._deleted.get(work))
        return any(at is not None and self._now_ms() - at <= ASKED_MS for at in times)

    def _meet(self, situation: str, work: TaskId | str, met: bool = True) -> None:
        what = "connector: " if isinstance(work, str) else ""
        self.met[f"{what}{situation}"] += met


def _has_budget(config: Config) -> bool:
    """Others have the policy of the worker, without a budget to speak of."""
    return "headgate.restart.max" in config
