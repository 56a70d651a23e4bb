"""The group port on a Kafka broker: a worker's requests to the coordinator of its group.

`headgate.membership.member` is the state machine of the membership. This module carries its
requests and decides nothing about the membership. It finds the coordinator, waits while the
coordinator is loading or moving, and connects again with growing pauses.

A broker differs in three ways from a coordinator in this process:

- A broker answers the requests of one connection in turn, and holds a join until the round is
  complete. Heartbeats go on meanwhile, so they have a connection of their own.
- A leader that joins twice begins a second round. The member repeats requests that are not
  answered. A repetition is dropped while the request is under way, and after it was answered.
- A broker reads a new join only after it has answered the old one. So a new join takes a new
  connection, and the old one is closed.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kafka.errors import AuthorizationError, KafkaError, NodeNotReadyError

from headgate.membership.messages import (
    GroupError,
    GroupRequest,
    GroupResponse,
    Heartbeat,
    HeartbeatAnswered,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from headgate.ports import RefusedError, TransportError
from headgate_kafka.group.link import (
    REQUEST_MS,
    CodeError,
    Coordinator,
    Link,
    NotLetInError,
    check_version,
)
from headgate_kafka.group.wire import decode, encode
from headgate_kafka.login.principal import grant, of_kafka_python

PASSING: Final = frozenset({7, 14, 15, 16})
"""Error codes after which the coordinator is looked for again: timed out, loading, not available,
moved."""
JOIN_EXTRA_MS: Final = 5_000
"""How much longer than the rebalance timeout a round may take. Source: Java's
AbstractCoordinator."""
LEAVE_MS: Final = 2_000
"""How long `close` waits for a leave to be answered."""
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0
_REFUSED_PAUSE_S: Final = 5.0
_HINTS: Final[Mapping[int, str]] = {
    24: "group.id must not be empty",
    26: "session.timeout.ms must be within group.min.session.timeout.ms and "
    "group.max.session.timeout.ms of the broker",
    35: "the broker is too old for this request",
    81: "the group has as many members as the broker's group.max.size allows",
}
_NOT_AUTHORIZED: Final = 30
_DESCRIBING: Final = ("FindCoordinator", "DescribeGroups")


class GroupRefusedError(RefusedError):
    """The brokers refuse a request about a group, or the login."""


def refused(group: str, at: str, error: Exception, who: str) -> GroupRefusedError:
    """Make the error of a refusal, with the operation, the resource and the principal `who`."""
    if not isinstance(error, CodeError):
        return GroupRefusedError(f"no connection for {who} at {at}: {error}")
    refusal = f"{error.operation} on group {group!r} was refused at {at}: {error}"
    if error.code == _NOT_AUTHORIZED:
        right = "Describe" if error.operation in _DESCRIBING else "Read"
        return GroupRefusedError(
            f"{refusal}; {who} needs the operation {right} on the resource Group:{group} "
            f"({grant(who, right, 'Group', group, at)})"
        )
    hint = _HINTS.get(error.code)
    return GroupRefusedError(f"{refusal}; {hint}" if hint else refusal)


class _Lane:
    """The request of one connection, one at a time. Used on the link's thread only."""

    current: GroupRequest | None = None
    """The request that is not answered yet."""
    sent = False
    """`current` was sent, and no failure of it is known."""


class _Failures:
    """The reason why requests are not answered. Written on the link's thread, read by others."""

    error: TransportError | None = None
    """The error that `receive` raises. None: no attempt has failed, or only one."""
    bug: BaseException | None = None
    """An unexpected exception on the link's thread. Later calls raise it."""

    def __init__(self) -> None:
        self._last: TransportError | None = None
        self._many = 0

    def cleared(self) -> None:
        self.error = self._last = None
        self._many = 0

    def refused(self, error: GroupRefusedError) -> float:
        """Note a refusal. Return how long to wait before the next attempt, in seconds."""
        self.error = self._last = error
        return _REFUSED_PAUSE_S

    def failed(self, refusal: str, error: Exception) -> float:
        self._many += 1
        # NodeNotReadyError only says that kafka-python pauses between attempts to connect.
        if self._last is None or not isinstance(error, NodeNotReadyError):
            name, text = type(error).__name__, str(error)
            self._last = TransportError(
                f"{refusal}: {text}" if text.startswith(name) else f"{refusal}: {name}: {text}"
            )
        # A single failure, such as a closed connection, is not reported. A second one is.
        self.error = self._last if self._many > 1 else None
        pause_s: float = _PAUSE_S * 2 ** min(self._many - 1, 10)
        return min(pause_s, _PAUSE_S_MAX)


class KafkaGroup:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Make the port without connecting. The first request connects, under the client id of the
        join, from which the broker makes the member id.

        Args:
            settings: kafka-python's arguments (`clients.settings.worker_kafka_python`).

        Raises:
            RuntimeError: kafka-python has another version than this adapter was written for.
        """
        check_version()
        self._settings = dict(settings)
        self._started: Link | None = None
        self._principal = of_kafka_python(settings)
        self._arrived: deque[GroupResponse] = deque()
        self._failures = _Failures()
        self._coordinator: Coordinator | None = None
        self._waiting = _Lane()
        self._quick = _Lane()
        self._settled: list[GroupRequest] = []
        """The last join, and the sync of its round, if they were answered without an error."""
        self._round_over = False
        """A heartbeat was answered ILLEGAL_GENERATION while a join waits, so its round has
        ended."""
        self._session_timeout_ms = self._rebalance_timeout_ms = REQUEST_MS
        self._left = threading.Event()
        self._left.set()
        self._closed = False
        self._on_change: Callable[[], None] = lambda: None

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Have `on_change` called, on the link's thread, when a response has arrived."""
        self._on_change = on_change

    def send(self, request: GroupRequest) -> None:
        self._raise_bug()
        if isinstance(request, LeaveGroup):
            self._left.clear()
        if self._started is None:
            named = {"client_id": request.client_id} if isinstance(request, JoinGroup) else {}
            self._started = Link({**self._settings, **named})
        try:
            self._started.spawn(self._take, request)
        except OSError as error:
            raise TransportError(f"group {request.group!r}: {error}") from None

    def receive(self) -> Sequence[GroupResponse]:
        """Return the responses that have arrived since the last call. Do not wait.

        Raises:
            GroupRefusedError: the brokers refuse the request or the login. Waiting does not help.
            TransportError: at least two attempts have failed and no response has come.
        """
        if not self._arrived:
            self._raise_bug()
            if self._failures.error is not None:
                # A copy is raised, because raising adds this call's traceback to the exception.
                raise type(self._failures.error)(str(self._failures.error))
            return ()
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def changed(self) -> bool:
        """Return whether `receive` would return a response or raise. It is cheap."""
        return bool(self._arrived or self._failures.error or self._failures.bug)

    def close(self) -> None:
        """Close the connections, after waiting up to `LEAVE_MS` for the response to a leave."""
        self._left.wait(LEAVE_MS / 1000)
        self._closed = True
        if self._started is not None:
            self._started.close()

    @property
    def _link(self) -> Link:
        assert self._started is not None, "used by what runs on its thread"
        return self._started

    def _raise_bug(self) -> None:
        bug = self._failures.bug
        if bug is not None:
            raise RuntimeError(f"the thread of the group's connections failed: {bug!r}") from bug

    # -- on the link's thread --

    async def _take(self, request: GroupRequest) -> None:
        lane = self._quick if isinstance(request, Heartbeat | LeaveGroup) else self._waiting
        if self._is_repetition(request):
            return
        if isinstance(request, JoinGroup):
            self._session_timeout_ms = request.session_timeout_ms
            self._rebalance_timeout_ms = request.rebalance_timeout_ms
        if not isinstance(request, Heartbeat):
            if self._waiting.sent and self._coordinator is not None:
                self._link.drop(self._coordinator.waiting)
            self._waiting.current = None
            self._waiting.sent = self._round_over = False
            if not isinstance(request, SyncGroup):
                self._settled.clear()
        lane.current, lane.sent = request, False
        try:
            pause_s = await self._attempt(lane, request)
            while pause_s is not None and not self._closed:
                await self._link.sleep(pause_s)
                pause_s = await self._attempt(lane, request)
        except Exception as bug:
            self._failures.bug = bug
            raise

    def _is_repetition(self, request: GroupRequest) -> bool:
        match request:
            case JoinGroup() if request == self._waiting.current:
                # If the round is over the join's response may be lost, so the join is sent again.
                return not (self._round_over and self._waiting.sent)
            case JoinGroup() if request.sequence == 0:
                return False  # the sender does not number its joins, so each one is new
            case JoinGroup() | SyncGroup():
                return request == self._waiting.current or request in self._settled
            case Heartbeat():
                # One heartbeat under way is enough: a second one would be answered after it.
                return self._quick.sent or isinstance(self._quick.current, LeaveGroup)
            case LeaveGroup():
                return request == self._quick.current

    async def _attempt(self, lane: _Lane, request: GroupRequest) -> float | None:
        """Try once to send `request`. Return the pause in seconds before the next try. None: there
        is to be no further try."""
        if lane.current is not request:
            return None
        try:
            if self._coordinator is None:
                self._coordinator = await self._link.find(request.group)
                if lane.current is not request:
                    return None
            found = self._coordinator
            node: str | int = found.quick if lane is self._quick else found.waiting
            lane.sent = True
            response = await self._link.ask(node, encode(request), self._timeout_ms(request))
            answer = decode(request, response)
        except (CodeError, NotLetInError, KafkaError, OSError) as error:
            if lane.current is not request:
                return None  # a later request has replaced it and closed its connection
            lane.sent = False
            return self._failed(request, error)
        if lane.current is request:
            lane.current, lane.sent = None, False
            self._answered(request, answer)
        return None

    def _answered(self, request: GroupRequest, answer: GroupResponse | None) -> None:
        self._failures.cleared()
        match request:
            case JoinGroup() | SyncGroup():
                if answer is not None and answer.error is None:
                    self._settled.append(request)
            case LeaveGroup():
                self._left.set()
            case Heartbeat():
                if isinstance(answer, HeartbeatAnswered):
                    over = answer.error is GroupError.ILLEGAL_GENERATION
                    self._round_over = over and isinstance(self._waiting.current, JoinGroup)
        if answer is not None:
            self._arrived.append(answer)
            self._on_change()

    def _failed(self, request: GroupRequest, error: Exception) -> float:
        """Note a failure and forget the coordinator, which may have moved. Return the pause in
        seconds before the next attempt."""
        at = self._coordinator.address if self._coordinator else self._link.servers
        code = error.code if isinstance(error, CodeError) else None
        if not isinstance(error, CodeError | NodeNotReadyError):
            self._link.drop_all()
        self._coordinator = None
        if isinstance(error, NotLetInError | AuthorizationError) or (
            code is not None and code not in PASSING
        ):
            return self._failures.refused(refused(request.group, at, error, self._principal))
        return self._failures.failed(
            f"{type(request).__name__} of group {request.group!r} is not answered at {at}", error
        )

    def _timeout_ms(self, request: GroupRequest) -> int:
        match request:
            case JoinGroup() | SyncGroup():
                return max(REQUEST_MS, self._rebalance_timeout_ms + JOIN_EXTRA_MS)
            case _:
                return max(1, min(REQUEST_MS, self._session_timeout_ms // 3))
