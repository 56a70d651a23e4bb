"""All ports on one file, as a worker, a task or a display opens them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headgate.log.retention import LogLimits, limit_texts, parse_limits
from headgate.membership.consumer import ConsumerSettings
from headgate.ports import Clock
from headgate.topics.offsets import OffsetView, read_offsets
from headgate_embedded.database import LEASE_MS, Database, say_on_stderr
from headgate_embedded.group import Coordinators, EmbeddedGroup
from headgate_embedded.logs import EmbeddedConfigLog, EmbeddedKeyedLog
from headgate_embedded.machine import MonotonicClock, boot_id, same_machine
from headgate_embedded.peers import EmbeddedPeers
from headgate_embedded.producer import NO_LIMITS, OFFSETS, EmbeddedFencer
from headgate_embedded.records import EmbeddedRecordLog
from headgate_embedded.schema import FILE_NAME, RefusedError

STATUS = "status"
LOG_PREFIX = "log."


class EmbeddedTransport:
    """The ports of one process on the log in a data folder. Safe to use from several threads."""

    def __init__(
        self,
        database: Database,
        url: str,
        clock: Clock,
        consumer: ConsumerSettings,
        compression: str,
        limits: LogLimits = NO_LIMITS,
    ) -> None:
        self.clock = clock
        self._database = database
        coordinators = Coordinators(database, clock)
        self.config_log = EmbeddedConfigLog(database)
        self.offset_log = EmbeddedKeyedLog(database, OFFSETS)
        self.status_log = EmbeddedKeyedLog(database, STATUS)
        self.group = EmbeddedGroup(database, coordinators)
        self.record_log = EmbeddedRecordLog(database, coordinators, consumer, compression, limits)
        self.fencer = EmbeddedFencer(database)
        self.peers = EmbeddedPeers(database, clock, url)
        self._watch = database.watch()

    def subscribe(self, _on_change: Callable[[], None]) -> bool:
        """Nobody is told of what another process writes to a file."""
        return False

    def changed(self) -> bool:
        """Whether a log, the group or a call may have something new since this was asked last."""
        return self._watch.changed() or self.group.overdue()

    def offset_view(self) -> OffsetView:
        """All source offsets as they are now; there is one offsets topic."""
        return OffsetView(read_offsets(self.offset_log))

    def close(self) -> None:
        self._database.close()


def open_transport(
    transport: Mapping[str, str],
    *,
    url: str = "",
    warn: Callable[[str], None] = say_on_stderr,
    clock: Clock | None = None,
) -> EmbeddedTransport:
    """The ports on the log that `transport` names; the log is made if it is not there.

    Args:
        transport: ``path``, the data folder. Optional: ``boot.id``, as `transport_settings` puts
            it there; ``lock.lease.ms``, how long a process may stand still with the write lock
            before it is killed; ``consumer.session.timeout.ms``; ``compression``, none or zlib;
            settings of `headgate.log.retention`, with ``log.`` before their keys.
        url: under which other workers call this one.
        warn: told in one line what an operator should know, such as the killing of a process;
            on stderr if left out.
        clock: of sessions and deadlines, the same for all processes; the machine's if left out.

    Raises:
        RefusedError: the file is foreign, corrupt or of another version, SQLite is too old, or
            this process runs on another machine than the log.
        TransportError: the file cannot be reached.
    """
    check_machine(transport)
    lease_ms = int(transport.get("lock.lease.ms", LEASE_MS))
    database = Database(Path(transport["path"]) / FILE_NAME, lease_ms=lease_ms, warn=warn)
    consumer = ConsumerSettings()
    if (timeout := transport.get("consumer.session.timeout.ms")) is not None:
        consumer = ConsumerSettings(session_timeout_ms=int(timeout))
    compression = transport.get("compression", "none")
    limits = limits_of(transport)
    return EmbeddedTransport(
        database, url, clock or MonotonicClock(), consumer, compression, limits
    )


def open_task_transport(
    transport: Mapping[str, str],
    connector_config: Mapping[str, str],
    *,
    connector: str,
    kind: str,
    exactly_once: bool,
    warn: Callable[[str], None] = say_on_stderr,
) -> EmbeddedTransport:
    """The ports as tasks of `connector` use them. There are no clients whose settings it could
    override, and no offsets topics but one: all but `transport` is of no use here.

    Raises:
        RefusedError, TransportError: as `open_transport`.
    """
    return open_transport(transport, warn=warn)


def transport_settings(path: str | Path, limits: LogLimits = NO_LIMITS) -> dict[str, str]:
    """How processes on this machine reach the log in folder `path`; those on another refuse it."""
    own = {"kind": "embedded", "path": str(Path(path).absolute()), "boot.id": boot_id()}
    return own | {f"{LOG_PREFIX}{key}": text for key, text in limit_texts(limits).items()}


def limits_of(transport: Mapping[str, str]) -> LogLimits:
    """What `transport_settings` was told.

    Raises:
        LimitsError: a setting cannot be used.
    """
    texts = {
        key.removeprefix(LOG_PREFIX): text
        for key, text in transport.items()
        if key.startswith(LOG_PREFIX)
    }
    return parse_limits(texts) if texts else NO_LIMITS


def check_machine(transport: Mapping[str, str]) -> None:
    """Refuse to go on if this process is not on the machine that `transport` was made on: a file
    shared over a network has neither its locks nor its memory map."""
    made_on = transport.get("boot.id")
    if made_on is not None and not same_machine(made_on):
        raise RefusedError(
            f"the embedded log {transport['path']} is on the machine with boot id {made_on}, this "
            f"process on {boot_id()}: run it on that machine, or use a broker"
        )


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as it is stored; nothing in it has been moved on to the present."""

    members: tuple[str, ...]
    generation: int
    state: str


class EmbeddedReader:
    """What a display needs, without ever taking the write lock."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._coordinators = Coordinators(database, MonotonicClock())
        self.config_log = EmbeddedConfigLog(database)
        self.offset_log = EmbeddedKeyedLog(database, OFFSETS)
        self.status_log = EmbeddedKeyedLog(database, STATUS)
        self.record_log = EmbeddedRecordLog(database, self._coordinators, ConsumerSettings())

    def describe_group(self, group: str) -> GroupDescription:
        machine = self._coordinators.look(group)
        members = machine.members(group)
        return GroupDescription(members, machine.generation(group), machine.state(group))

    def close(self) -> None:
        self._database.close()


def open_reader(path: str | Path, *, once: bool = False) -> EmbeddedReader:
    """The log in folder `path`, for reading.

    Args:
        once: for one look, which need not see what is written meanwhile. If nobody has the log
            open, it leaves no trace.

    Raises:
        RefusedError: there is none, or it is not ours.
    """
    file = Path(path) / FILE_NAME
    still = once and not file.with_name(f"{FILE_NAME}-wal").exists()
    return EmbeddedReader(Database(file, read_only=True, still=still))
