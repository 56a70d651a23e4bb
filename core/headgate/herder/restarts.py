"""Restarts that all workers carry out: a record of the leader selects what, each restarts what it
holds of it.

Source: KIP-745; DistributedHerder.processRestartRequests, RestartRequest, RestartPlan.

Differs: what is FAILED is known by the worker that runs it, not looked up in a status that may lag
behind. Requests are never replayed; one that comes during a rebalance waits for its end, and of
those that wait for one connector the one that restarts more counts, as in Java.
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
        """All that wait, if work may be started now."""
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
        """This connector or tasks of it are to be restarted, and not all of that which is here has
        been stopped yet."""
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
