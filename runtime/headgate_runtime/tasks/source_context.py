"""The context of a source connector's task."""

import logging
from collections.abc import Mapping, Sequence

from headgate.connector.api import SourceTask
from headgate.task.messages import UNTIL_IDLE
from headgate_runtime.tasks.boundaries import TransactionContext
from headgate_runtime.tasks.lifeline import BodyLifeline
from headgate_runtime.tasks.long_calls import waiting
from headgate_runtime.tasks.offsets import SourceOffsets

_log = logging.getLogger("headgate.task")


class SourceContext:
    """A source task's link to its worker. Source: `SourceTaskContext`."""

    def __init__(
        self,
        lifeline: BodyLifeline,
        offsets: SourceOffsets,
        transaction: TransactionContext | None,
    ) -> None:
        self._lifeline = lifeline
        self._offsets = offsets
        self._transaction = transaction
        self.awaited = False
        """Whether the poll under way has said that it waits for input."""
        self.quarantined: tuple[str, ...] = ()
        """Inputs that the task named last."""
        self.takes_batches = False
        self.keeps_batches = False

    @property
    def offsets(self) -> SourceOffsets:
        return self._offsets

    @property
    def transaction(self) -> TransactionContext | None:
        return self._transaction

    @property
    def stopping(self) -> bool:
        return self._lifeline.stopping

    @property
    def until_idle(self) -> bool:
        return self._lifeline.spec.worker_settings.get(UNTIL_IDLE) == "true"

    def wait(self, seconds: float) -> bool:
        with waiting():
            return self._lifeline.wait(seconds)

    def await_input(self) -> None:
        self.awaited = True

    def quarantine(self, inputs: Sequence[str]) -> None:
        self.quarantined = tuple(inputs)

    @property
    def worker_settings(self) -> Mapping[str, str]:
        return self._lifeline.spec.worker_settings

    @property
    def cluster(self) -> str:
        spec = self._lifeline.spec
        log = spec.transport.get("path") or spec.transport.get("bootstrap.servers", "")
        return f"{spec.group} on {log}"

    def log(self, message: str) -> None:
        _log.warning("%s: %s", self._lifeline.spec.task, message)


def inherits(task: SourceTask, name: str) -> bool:
    """Return whether the task has not overridden method `name`, so that calling it has no
    effect."""
    return getattr(getattr(task, name), "__func__", None) is getattr(SourceTask, name)
