"""A worker on a real broker that runs nothing: the member machine, the group port and the config
log.

What it would run is kept as a set.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from headgate.assignment.model import Work
from headgate.ids import TaskId
from headgate.membership import member_messages as mm
from headgate.membership.member import Member
from headgate.membership.member_messages import MemberState
from headgate.membership.messages import JoinedGroup, SyncGroup
from headgate.ports import TransportError
from headgate.topics.config_records import decode_all
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate_kafka.transport import open_transport

KINDS = ("config", "offset", "status")
ALL_PROTOCOLS = ("headgate", "sessioned", "compatible", "default")


@dataclass(frozen=True)
class LedRound:
    """A round that this member led: its input and its assignments."""

    now_ms: int
    joined: JoinedGroup
    view: mm.WorkView
    last_completed_generation: int
    assignments: dict[str, bytes]


@dataclass
class KafkaMember:
    """A member that lives only while a test waits in `until`."""

    address: str
    group: str
    name: str
    protocols: tuple[str, ...] = ALL_PROTOCOLS
    url: str = "http://127.0.0.1:1/"
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 200
    rebalance_timeout_ms: int = 20_000
    delay_ms_max: int = 0
    running: set[Work] = field(default_factory=set)
    stops: list[Work] = field(default_factory=list)
    """The work that was stopped, in order."""
    assigned: list[mm.Assigned] = field(default_factory=list)
    led: list[LedRound] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """What the group port reported about the coordinator."""
    closed: bool = False

    def __post_init__(self) -> None:
        self.properties = {
            "bootstrap.servers": self.address,
            "group.id": self.group,
            "config.storage.topic": f"{self.group}-configs",
            "offset.storage.topic": f"{self.group}-offsets",
            "status.storage.topic": f"{self.group}-status",
            **{f"{kind}.storage.replication.factor": "1" for kind in KINDS},
        }
        self.transport = open_transport(self.properties)
        self.member = Member(
            mm.MemberSettings(
                self.group,
                self.name,
                self.url,
                session_timeout_ms=self.session_timeout_ms,
                heartbeat_interval_ms=self.heartbeat_interval_ms,
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                delay_ms_max=self.delay_ms_max,
                error_pause_ms=200,
                protocols=self.protocols,
            )
        )
        self.state = ConfigState()
        self._position = 0
        self._completed = -1
        """The last generation of which it was told an assignment, whatever it gave up since."""
        self._lost_since_ms: int | None = None

    # -- what tests do --

    def start(self) -> None:
        self._read(to_end=True)
        self._give(mm.Start())

    def leave(self) -> None:
        self._give(mm.Leave())

    def lose(self, reason: str) -> None:
        """Lose the coordinator: the member stops its work and joins again."""
        self._give(mm.CoordinatorLost(reason))

    def close(self) -> None:
        """Close the member without a word to the group, as if it were killed. If it has left
        before, the group knows."""
        if not self.closed:
            self.closed = True
            self.transport.close()

    @property
    def steady(self) -> bool:
        return self.member.state is MemberState.STEADY and not self.member.pending

    @property
    def configured(self) -> set[Work]:
        """All connectors and tasks that are configured."""
        counts = self._view().connectors
        tasks = {TaskId(name, n) for name, many in counts.items() for n in range(many)}
        return {*counts, *tasks}

    # -- one look at everything --

    def step(self) -> None:
        before = self.state.assignment_offset
        self._read()
        if self.state.assignment_offset != before:
            self._give(mm.RejoinRequested("the config topic changed"))
        deadline_ms = self.member.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= self._now_ms():
            self._give(mm.Tick())
        try:
            for response in self.transport.group.receive():
                self._give(response)
            self._lost_since_ms = None
        except TransportError as error:
            self._lost(str(error))

    def _lost(self, reason: str) -> None:
        now_ms = self._now_ms()
        if self._lost_since_ms is None:
            self._lost_since_ms = now_ms
            self.said.append(reason)
        elif now_ms - self._lost_since_ms >= self.heartbeat_interval_ms:
            self._lost_since_ms = now_ms
            self.lose(reason)

    def _read(self, to_end: bool = False) -> None:
        log = self.transport.config_log
        if not to_end and not self.transport.changed():
            return
        end = log.end() if to_end else -1
        while True:
            records, self._position = log.read(self._position)
            self.state = fold(self.state, decode_all((r.offset, r.key, r.value) for r in records))
            if not records and self._position >= end:
                return

    def _give(self, given: mm.MemberInput) -> None:
        now_ms, view, completed = self._now_ms(), self._view(), self._completed
        for output in self.member.handle(now_ms, given, view):
            if isinstance(output, SyncGroup) and isinstance(given, JoinedGroup) and given.members:
                self.led.append(LedRound(now_ms, given, view, completed, dict(output.assignments)))
            self._perform(output)

    def _perform(self, output: mm.MemberOutput) -> None:
        match output:
            case mm.Assigned():
                self.assigned.append(output)
                self._completed = output.generation
            case mm.Revoked():
                self._stop({*output.connectors, *output.tasks})
            case mm.StopEverything():
                self._stop(set(self.running))
            case mm.CatchUp():
                self._read(to_end=True)
                self._give(mm.CaughtUp())
            case mm.StartAllowed():
                self.running |= {*self.member.connectors, *self.member.tasks}
            case _:
                self.transport.group.send(output)

    def _stop(self, works: set[Work]) -> None:
        self.stops += sorted(works & self.running, key=str)
        self.running -= works
        self._give(mm.WorkReleased())

    def _view(self) -> mm.WorkView:
        return mm.WorkView(
            self.state.assignment_offset,
            self.state.offset,
            {
                name: 0 if entry.inconsistent else entry.task_count or 0
                for name, entry in self.state.entries.items()
                if entry.config is not None
            },
            tuple(sorted(w for w in self.running if isinstance(w, str))),
            tuple(sorted(w for w in self.running if isinstance(w, TaskId))),
        )

    def _now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def until(
    done: Callable[[], bool], members: Iterable[KafkaMember], timeout_s: float = 30.0
) -> None:
    """Let the members live until `done()` is true. Raises TimeoutError."""
    alive = list(members)
    deadline = time.monotonic() + timeout_s
    while True:
        for member in alive:
            member.step()
        if done():
            return
        if time.monotonic() > deadline:
            stand = [
                (m.name, m.member.state, m.member.pending, m.member.protocol, m.said[-1:])
                for m in alive
            ]
            raise TimeoutError(f"not within {timeout_s:g} s: {stand}")
        time.sleep(0.005)
