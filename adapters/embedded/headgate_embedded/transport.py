"""All ports on the embedded log, for a worker, a task or a program that only displays."""

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
        """Return False: this transport cannot notify, since no process is notified of writes of
        another one. The caller polls `changed`."""
        return False

    def changed(self) -> bool:
        """Return whether a log, the group or a call may have something new since the last call."""
        return self._watch.changed() or self.group.overdue()

    def offset_view(self) -> OffsetView:
        """Return all source offsets as they are now. The embedded log has one offsets topic."""
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
    """Open the ports on the log that `transport` names. The log is created if it does not exist.

    Args:
        transport: settings. ``path`` is the data folder. Optional are ``boot.id``, as made by
            `transport_settings`, ``lock.lease.ms``, how long a process may hold the write lock
            without a commit before it is killed, ``consumer.session.timeout.ms``, and
            ``compression``, none or zlib. So are the settings of `headgate.log.retention`, with
            the prefix ``log.``.
        url: the URL under which other workers call this one.
        warn: called with one line of text for each thing that an operator should know, such as
            that a process was killed. By default it prints on stderr.
        clock: clock of sessions and deadlines, which must be the same for all processes. By default
            the machine's monotonic clock.

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
    """Open the ports of a connector's tasks.

    All arguments but `transport` and `warn` are ignored. There are no clients whose settings a
    connector could override, and there is only one offsets topic.

    Raises:
        RefusedError, TransportError: as `open_transport`.
    """
    return open_transport(transport, warn=warn)


def transport_settings(path: str | Path, limits: LogLimits = NO_LIMITS) -> dict[str, str]:
    """Return the settings by which processes on this machine open the log in folder `path`.
    Processes on another machine refuse them, by ``boot.id``."""
    own = {"kind": "embedded", "path": str(Path(path).absolute()), "boot.id": boot_id()}
    return own | {f"{LOG_PREFIX}{key}": text for key, text in limit_texts(limits).items()}


def limits_of(transport: Mapping[str, str]) -> LogLimits:
    """Return the limits in settings that `transport_settings` has made.

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
    """Check that this process runs on the machine on which `transport` was made. A file shared over
    a network has neither SQLite's locks nor its shared memory.

    Raises:
        RefusedError: it runs on another machine, or the machine has booted since.
    """
    made_on = transport.get("boot.id")
    if made_on is not None and not same_machine(made_on):
        raise RefusedError(
            f"the embedded log {transport['path']} is on the machine with boot id {made_on}, this "
            f"process on {boot_id()}: run it on that machine, or use a broker"
        )


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as it is stored. Sessions and rounds that have timed out since are not ended."""

    members: tuple[str, ...]
    generation: int
    state: str


class EmbeddedReader:
    """The ports for reading only, which never take the write lock."""

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
    """Open the log in folder `path` for reading.

    Args:
        once: it is read once, and need not show what is written meanwhile. If no process has the
            log open, no files are made beside it.

    Raises:
        RefusedError: there is no log, or the file is no embedded log.
    """
    file = Path(path) / FILE_NAME
    still = once and not file.with_name(f"{FILE_NAME}-wal").exists()
    return EmbeddedReader(Database(file, read_only=True, still=still))
