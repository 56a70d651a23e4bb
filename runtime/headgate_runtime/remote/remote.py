"""A cluster that is operated from outside, as the commands see it."""

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
    """What was waited for has not come about."""


class RefusedError(RemoteError):
    """The cluster has answered, and does not do it."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    number: int
    state: str
    """Empty: no status was reported."""
    worker: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call that has not returned for long."""

    task: int | None
    """None: it is a method of the connector itself."""
    method: str
    since_ms: int
    worker: str


@dataclass(frozen=True, slots=True)
class ConnectorRow:
    """A connector as the commands show it."""

    name: str
    type: str
    state: str
    """Empty: no status was reported."""
    target_state: str = ""
    """Empty: REST does not tell it."""
    settled: bool | None = None
    worker: str = ""
    trace: str = ""
    tasks: tuple[TaskRow, ...] = ()
    config: Config = field(default_factory=dict[str, str | None])
    task_configs: tuple[Config, ...] = ()
    topics: tuple[str, ...] = ()
    etag: str = ""
    """What a change of the connector as it is shown here gives along; empty: not known."""
    hanging_calls: tuple[CallRow, ...] | None = None
    """The oldest ones. None: not told here, as in all but a watch by gRPC."""
    hanging_calls_more: int = 0

    @property
    def failed(self) -> bool:
        return self.state == "FAILED" or any(task.state == "FAILED" for task in self.tasks)


@dataclass(frozen=True, slots=True)
class Difference:
    """A key of a config. A value that is hidden, or null, is None."""

    key: str
    before: str | None = None
    after: str | None = None
    hidden: bool = False
    is_before: bool = True
    is_after: bool = True


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """What would become of one connector."""

    name: str
    action: str
    """One of ``none``, ``create``, ``change config``, ``change state``, ``delete``."""
    differences: tuple[Difference, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()
    """Keys and what is wrong with them."""
    notes: tuple[tuple[str, str], ...] = ()
    """Keys and what is to be told of them, which is no fault."""
    state_after: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    rows: tuple[PlannedRow, ...]
    moves: tuple[tuple[str, str, str], ...] = ()
    """What, from which worker, to which one; empty: none."""
    move_count: int = 0
    moves_unknown: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What tasks are at."""

    batches: Sequence[Mapping[str, Any]] = ()
    """The last batches of tasks that commit planned ones, each as `BatchDone` with its task."""
    long_calls: Sequence[Mapping[str, Any]] = ()
    """Calls into connectors that have not returned for long: ``task``, empty where it is the
    connector's own, ``connector``, ``method``, ``took_ms``."""
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])
    """Workers that do not tell what their tasks are at, each with the reason."""


NO_WORK: Final = Work()


class Remote(Protocol):
    """Every method raises `RemoteError`. Names that nobody knows are refused."""

    where: str
    """Address, for messages."""

    def close(self) -> None: ...

    def cluster(self) -> Mapping[str, Any]:
        """``{"version", "kafka_cluster_id", "group_id", "workers", "others_unknown"}``. The last
        says why workers are missing from "workers"."""
        ...

    def work(
        self, cluster: Mapping[str, Any], rows: Sequence[ConnectorRow], *, of_rows: bool = False
    ) -> Work:
        """What tasks are at, of workers that tell it. `cluster` and `rows`: what the methods of
        that name gave. `of_rows`: workers on which nothing of `rows` runs need not be asked."""
        ...

    def rows(self, prefix: str = "", states: Sequence[str] = ()) -> Sequence[ConnectorRow]:
        """In order of names."""
        ...

    def row(self, name: str) -> ConnectorRow:
        """With task configs and topics."""
        ...

    def create(self, name: str, config: Config, state: TargetState | None) -> None: ...

    def put_config(self, name: str, config: Config, etag: str = "") -> bool:
        """Whether the connector is new. With `etag` it is refused if the connector has another."""
        ...

    def patch_config(self, name: str, changes: Config) -> None:
        """Set keys, and remove those whose value is None. The leader merges."""
        ...

    def plan(self, wanted: Mapping[str, Config], prune: str | None) -> Plan:
        """What would come of these configs; `prune`: of the deletion of others that begin so.
        Connectors that would not change and have no fault are left out."""
        ...

    def notes(self, wanted: Mapping[str, Config]) -> Sequence[tuple[str, str, str]]:
        """What is to be told of these configs, which is no fault: names of connectors, keys and
        texts. None of what is there already."""
        ...

    def delete(self, name: str) -> None: ...

    def set_target_state(self, name: str, state: TargetState) -> None: ...

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> None: ...

    def restart_task(self, name: str, task: int) -> None: ...

    def offsets(self, name: str) -> Sequence[Mapping[str, Any]]:
        """``[{"partition", "offset"}]``"""
        ...

    def alter_offsets(self, name: str, changes: Sequence[tuple[object, object]]) -> str:
        """Connect's message."""
        ...

    def reset_offsets(self, name: str) -> str:
        """Connect's message."""
        ...

    def offset_differences(
        self, name: str, changes: Sequence[tuple[object, object]] | None
    ) -> Sequence[Mapping[str, Any]]:
        """``[{"partition", "before", "after"}]``: what a change would do, None: a reset. Nothing is
        changed."""
        ...

    def deleted_offsets(self, name: str, kind: TaskKind) -> Sequence[Mapping[str, Any]]:
        """As `offsets`, of what a deleted connector has left."""
        ...

    def reset_deleted_offsets(self, name: str, kind: TaskKind) -> str:
        """The message to the user."""
        ...

    def deleted_offset_differences(self, name: str, kind: TaskKind) -> Sequence[Mapping[str, Any]]:
        """What `reset_deleted_offsets` would do, as `offset_differences`."""
        ...

    def plugins(self) -> Sequence[Mapping[str, Any]]:
        """Classes that the worker has: ``class``, ``type``, ``version``, as Connect's REST says."""
        ...

    def plugin(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The options of a class: ``name``, ``type``, ``required``, ``default_value``,
        ``importance``, ``documentation``, as Connect's REST says."""
        ...

    def loggers(self) -> Mapping[str, str]:
        """Levels by name."""
        ...

    def set_level(self, logger: str, level: str, *, cluster: bool) -> Sequence[str]:
        """Loggers that have it now; empty for the cluster."""
        ...

    def watch(self, prefix: str, names: Sequence[str]) -> Iterator[tuple[str, ConnectorRow | None]]:
        """What is there, then each change, without an end. None: it is deleted."""
        ...

    def wait(self, name: str, condition: str, timeout_s: float) -> ConnectorRow | None:
        """Until it is ``settled``, ``deleted``, or all of it has the state that `condition` is;
        None: it is deleted.

        Raises:
            LateError: not in time.
        """
        ...


def hint(code: str, message: str, name: str = "", reason: str = "", where: str = "") -> str:
    """What to do next after a refusal.

    Args:
        code: a gRPC status code by name.
        where: address of the worker that has refused it.
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
    """The arguments are those of `hint`."""
    text = message.rstrip().rstrip(".")
    return RefusedError(f"{text}\n  next: {hint(code, message, name, reason, where)}")
