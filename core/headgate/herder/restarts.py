"""Restarts by record: the leader's record selects a connector and tasks, and each worker restarts
those that it holds.

Source: KIP-745; DistributedHerder.processRestartRequests, RestartRequest, RestartPlan.

Differs: the worker that runs a task knows whether it is FAILED, and does not look that up in a
status, which may lag behind. Requests are never replayed. One that comes during a rebalance waits
for its end. Of several that wait for one connector, the one that restarts more counts, as in Java.
"""

from headgate.herder.connectors import Connectors
from headgate.herder.context import Context
from headgate.herder.statuses import Statuses
from headgate.herder.tasks import Tasks
from headgate.topics.config_events import RestartRequested


class Restarts:
    def __init__(
        self, ctx: Context, connectors: Connectors, tasks: Tasks, statuses: Statuses
    ) -> None:
        self._ctx = ctx
        self._statuses = statuses
        self._connectors = connectors
        self._tasks = tasks
        self._waiting: dict[str, RestartRequested] = {}

    def on_requested(self, request: RestartRequested) -> None:
        self._statuses.hold_back(request.connector, request.offset)
        known = self._waiting.get(request.connector)
        if known is None or _impact(request) > _impact(known):
            self._waiting[request.connector] = request

    def carry_out(self) -> None:
        """Carry out all waiting restarts, if work may be started now."""
        if not self._ctx.membership.stable:
            return
        waiting, self._waiting = self._waiting, {}
        self._statuses.held_back_no_more()
        for name, request in waiting.items():
            if self._ctx.state.entry(name) is None:
                continue
            self._connectors.restart_planned(name, only_failed=request.only_failed)
            if request.include_tasks:
                self._tasks.restart_planned(name, only_failed=request.only_failed)

    def under_way(self, name: str) -> bool:
        """Return whether the connector or its tasks are to be restarted, and not all of them that
        are here have been stopped yet."""
        return (
            name in self._waiting
            or self._connectors.is_restarting(name)
            or self._tasks.is_restarting(name)
        )

    @property
    def pending(self) -> list[str]:
        return [f"to be restarted {name}" for name in self._waiting]


def _impact(request: RestartRequested) -> tuple[bool, bool]:
    return not request.only_failed, request.include_tasks
