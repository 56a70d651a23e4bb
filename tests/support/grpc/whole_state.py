"""All state that a call can change on a worker with an embedded log, to be compared before and
after."""

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw
from support.grpc.worker import Served
from support.rest.world import wait_until

from headgate.herder.messages import Command
from headgate_embedded.schema import FILE_NAME

TABLES = ("latest", "changes", "claims", "topics", "heads", "producers", "committed")
"""Tables of the log with source offsets, statuses, claims, records and consumer offsets. The other
tables hold the messages of the group's members."""


@dataclass(frozen=True)
class WholeState:
    """The log, the herder's state of it, the connectors and tasks that run, and the levels of
    loggers."""

    config_records: int
    """Records of the config topic: none is ever removed."""
    tables: dict[str, list[Any]]
    entries: dict[str, Any]
    """Configs, task configs and target states of connectors, and restarts that were asked for."""
    loggers: dict[str, Any]
    running: Any
    """Connectors and tasks of this worker with their states and runs."""

    def differences(self, other: "WholeState") -> list[str]:
        """Return the names of the parts that differ, and the rows that only one state has in a
        table of the log."""
        found = [name for name in vars(self) if getattr(self, name) != getattr(other, name)]
        for name in TABLES:
            one, two = set(self.tables[name]), set(other.tables[name])
            found += [f"{name}: before {row}" for row in sorted(map(str, one - two))]
            found += [f"{name}: now {row}" for row in sorted(map(str, two - one))]
        return found


class Watched:
    """A worker whose herder checks its tables after each command, and ends if they contradict each
    other.

    The state is taken between two commands, when every decision so far is performed.

    Args:
        folder: the folder of the embedded log.
    """

    def __init__(self, served: Served, folder: Path) -> None:
        self._served = served
        self._folder = folder
        self._one_command = threading.Lock()
        host = served.worker.host
        host._checked = True
        handle = host.handle

        def alone(command: Command) -> None:
            with self._one_command:
                handle(command)

        host.handle = alone  # type: ignore[method-assign]

    def read_all(self) -> None:
        """Wait until the worker has read all that is in its config log."""
        wait_until(self._has_read_all, 10)

    def _has_read_all(self) -> bool:
        end = self._served.worker.transport.config_log.end()
        return self._served.worker.herder.state.offset >= end

    def settled(self) -> WholeState:
        """Return the state once the worker has read all and nothing is under way."""
        found: list[WholeState] = []

        def look() -> bool:
            with self._one_command:
                if self._has_read_all() and self._served.worker.herder.view().settled:
                    found.append(self._state())
            return bool(found)

        wait_until(look, 20)
        return found[0]

    def state(self) -> WholeState:
        """Return the present state."""
        with self._one_command:
            return self._state()

    def _state(self) -> WholeState:
        connection = apsw.Connection(str(self._folder / FILE_NAME), apsw.SQLITE_OPEN_READONLY)
        try:
            tables = {name: list(connection.execute(f"select * from {name}")) for name in TABLES}
            ((records,),) = connection.execute("select count(*) from config_log")
        finally:
            connection.close()
        herder = self._served.worker.herder
        view = herder.view()
        tasks = [replace(task, moved_ms=None, call_since_ms=None) for task in view.tasks]
        return WholeState(
            records,
            tables,
            dict(herder.state.entries),
            dict(self._served.backend.loggers.levels()),
            (view.generation, dict(view.connectors), tasks),
        )
