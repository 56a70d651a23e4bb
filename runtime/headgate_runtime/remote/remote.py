"""A cluster that commands operate from outside."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from headgate.ids import TargetState
from headgate.task.messages import TaskKind
from headgate_runtime.worker.loggers import LEVELS

Config: TypeAlias = Mapping[str, str | None]


LISTED: Final = "headgate connectors list shows what is there"


class RemoteError(Exception):
    """A command cannot do what was asked. The message is for the user and says what to do next."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class LateError(RemoteError):
    """The awaited condition has not come about in time."""


class RefusedError(RemoteError):
    """The cluster has answered with a refusal."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    number: int
    state: str
    """State. Empty: no status was reported."""
    worker: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call that has not returned for long."""

    task: int | None
    """Number of the task. None: it is a method of the connector itself."""
    method: str
    since_ms: int
    worker: str


@dataclass(frozen=True, slots=True)
class ConnectorRow:
    """A connector as the commands show it."""

    name: str
    type: str
    state: str
    """State. Empty: no status was reported."""
    target_state: str = ""
    """Target state. Empty: REST does not show it."""
    settled: bool | None = None
    worker: str = ""
    trace: str = ""
    tasks: tuple[TaskRow, ...] = ()
    config: Config = field(default_factory=dict[str, str | None])
    task_configs: tuple[Config, ...] = ()
    topics: tuple[str, ...] = ()
    etag: str = ""
    """Etag to send with a change of the connector as it is shown here. Empty: it is not known."""
    hanging_calls: tuple[CallRow, ...] | None = None
    """The oldest calls. None: they are not shown here; only a watch by gRPC shows them."""
    hanging_calls_more: int = 0

    @property
    def failed(self) -> bool:
        return self.state == "FAILED" or any(task.state == "FAILED" for task in self.tasks)


@dataclass(frozen=True, slots=True)
class Difference:
    """A key of a config that differs. A value that is hidden, or null, is None."""

    key: str
    before: str | None = None
    after: str | None = None
    hidden: bool = False
    is_before: bool = True
    is_after: bool = True


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """The change that would be made to one connector."""

    name: str
    action: str
    """One of ``none``, ``create``, ``change config``, ``change state``, ``delete``."""
    differences: tuple[Difference, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()
    """Keys, each with its error."""
    notes: tuple[tuple[str, str], ...] = ()
    """Keys, each with a note that is no error."""
    state_after: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    rows: tuple[PlannedRow, ...]
    moves: tuple[tuple[str, str, str], ...] = ()
    """Moves: connector or task, from which worker, to which worker. Empty: nothing moves."""
    move_count: int = 0
    moves_unknown: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What tasks are doing."""

    batches: Sequence[Mapping[str, Any]] = ()
    """The last batches of tasks that commit planned ones, each as `BatchDone` with its task."""
    long_calls: Sequence[Mapping[str, Any]] = ()
    """Calls into connectors that have not returned for long: ``task`` (empty for the connector's
    own calls), ``connector``, ``method``, ``took_ms``."""
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])
    """Workers that do not say what their tasks are doing, each with the reason."""


NO_WORK: Final = Work()


class Remote(Protocol):
    """A cluster. Every method raises `RemoteError`. Unknown names are refused."""

    where: str
    """Address, for messages."""

    def close(self) -> None: ...

    def cluster(self) -> Mapping[str, Any]:
        """Return ``{"version", "kafka_cluster_id", "group_id", "workers", "others_unknown"}``. The
        last says why workers are missing from "workers"."""
        ...

    def work(
        self, cluster: Mapping[str, Any], rows: Sequence[ConnectorRow], *, of_rows: bool = False
    ) -> Work:
        """Return what tasks are doing, of the workers that report it. `cluster` and `rows` are
        results of the methods with these names. With `of_rows`, workers on which nothing of `rows`
        runs need not be asked."""
        ...

    def rows(self, prefix: str = "", states: Sequence[str] = ()) -> Sequence[ConnectorRow]:
        """Return the connectors, in order of names."""
        ...

    def row(self, name: str) -> ConnectorRow:
        """Return a connector with task configs and topics."""
        ...

    def create(self, name: str, config: Config, state: TargetState | None) -> None: ...

    def put_config(self, name: str, config: Config, etag: str = "") -> bool:
        """Write a config. Return whether the connector is new. With `etag` it is refused if the
        connector has another etag."""
        ...

    def patch_config(self, name: str, changes: Config) -> None:
        """Set keys, and remove keys whose value is None. The leader merges."""
        ...

    def plan(self, wanted: Mapping[str, Config], prune: str | None) -> Plan:
        """Return what writing these configs would do. With `prune`, others whose names begin with
        it would be deleted. Connectors without a change and without a fault are left out."""
        ...

    def notes(self, wanted: Mapping[str, Config]) -> Sequence[tuple[str, str, str]]:
        """Return notes on these configs that are no errors: names of connectors, keys and texts.
        Unchanged connectors have none."""
        ...

    def delete(self, name: str) -> None: ...

    def set_target_state(self, name: str, state: TargetState) -> None: ...

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> None: ...

    def restart_task(self, name: str, task: int) -> None: ...

    def offsets(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return ``[{"partition", "offset"}]``."""
        ...

    def alter_offsets(self, name: str, changes: Sequence[tuple[object, object]]) -> str:
        """Change offsets. Return Connect's message."""
        ...

    def reset_offsets(self, name: str) -> str:
        """Reset offsets. Return Connect's message."""
        ...

    def offset_differences(
        self, name: str, changes: Sequence[tuple[object, object]] | None
    ) -> Sequence[Mapping[str, Any]]:
        """Return ``[{"partition", "before", "after"}]`` of a change, or of a reset if `changes` is
        None. Nothing is changed."""
        ...

    def deleted_offsets(self, name: str, kind: TaskKind) -> Sequence[Mapping[str, Any]]:
        """Return the offsets that a deleted connector has left, in the form of `offsets`."""
        ...

    def reset_deleted_offsets(self, name: str, kind: TaskKind) -> str:
        """Reset the offsets of a deleted connector. Return the message for the user."""
        ...

    def deleted_offset_differences(self, name: str, kind: TaskKind) -> Sequence[Mapping[str, Any]]:
        """Return what `reset_deleted_offsets` would do, in the form of `offset_differences`."""
        ...

    def plugins(self) -> Sequence[Mapping[str, Any]]:
        """Return the worker's classes: ``class``, ``type``, ``version``, as Connect's REST API
        names them."""
        ...

    def plugin(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the options of a class: ``name``, ``type``, ``required``, ``default_value``,
        ``importance``, ``documentation``, as Connect's REST API names them."""
        ...

    def loggers(self) -> Mapping[str, str]:
        """Return the levels by logger name."""
        ...

    def set_level(self, logger: str, level: str, *, cluster: bool) -> Sequence[str]:
        """Set a level. Return the loggers that have it now; empty for a whole cluster."""
        ...

    def watch(self, prefix: str, names: Sequence[str]) -> Iterator[tuple[str, ConnectorRow | None]]:
        """Yield the present connectors, then each change, without an end. None: it is deleted."""
        ...

    def wait(self, name: str, condition: str, timeout_s: float) -> ConnectorRow | None:
        """Wait until the connector is ``settled`` or ``deleted``, or it and its tasks have the
        state `condition`. Return None if it is deleted.

        Raises:
            LateError: not in time.
        """
        ...


def hint(code: str, message: str, name: str = "", reason: str = "", where: str = "") -> str:
    """Return what to do next after a refusal.

    Args:
        code: a gRPC status code by name.
        where: address of the worker that has refused.
    """
    shown = f" {name}" if name else ""
    if reason == "ETAG_MISMATCH":
        return f"somebody else has changed it: look with headgate connectors show{shown or ' NAME'}"
    if "STOPPED" in message:
        return f"stop it first: headgate connectors stop{shown or ' NAME'}"
    if code == "ALREADY_EXISTS" and "deleted one" in message:
        return f"headgate offsets show{shown or ' NAME'} has its offsets, without --deleted"
    if code == "NOT_FOUND" and "deleted" in message:
        return "try the other type, source or sink; or nothing was committed"
    if "invalid log level" in message:
        return f"levels are {', '.join(LEVELS)}"
    match code:
        case "NOT_FOUND" if message.startswith("invalid log level"):
            return "levels are TRACE, DEBUG, INFO, WARN, ERROR, FATAL and OFF"
        case "NOT_FOUND" if message.startswith("Unknown task"):
            return f"headgate connectors show{shown or ' NAME'} lists its tasks"
        case "NOT_FOUND" if message.startswith("Unknown plugin"):
            at = f" --url {shlex.quote(where)}" if where else ""
            return f"headgate plugins{at} lists what this worker has"
        case "NOT_FOUND":
            return LISTED
        case "ALREADY_EXISTS":
            return "headgate connectors apply changes the one that is there"
        case "INVALID_ARGUMENT":
            return "nothing was changed; mend it and ask again"
        case "ABORTED" | "RESOURCE_EXHAUSTED":
            return "nothing was changed; ask again in a moment"
        case "PERMISSION_DENIED":
            return "a setting of the worker forbids it"
        case "DEADLINE_EXCEEDED":
            look = f"headgate connectors show{shown}" if name else "headgate status"
            return f"it may have been done: look with {look} before you ask again"
        case "UNAVAILABLE":
            return "ask again in a moment, or see headgate status"
        case _:
            return "the worker's log says more"


def refused(
    code: str, message: str, name: str = "", reason: str = "", where: str = ""
) -> RefusedError:
    """Return the error for a refusal, with its hint. The arguments are those of `hint`."""
    text = message.rstrip().rstrip(".")
    return RefusedError(f"{text}\n  next: {hint(code, message, name, reason, where)}")
