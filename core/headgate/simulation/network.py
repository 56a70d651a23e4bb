"""Calls between workers, and from users, in virtual time. Requests and answers are late or lost."""

from collections.abc import Callable
from dataclasses import dataclass

from headgate import wire
from headgate.herder.messages import Call, ErrorKind, Failure, PeerAnswered, Result, Success
from headgate.simulation.world import Worker, World


@dataclass
class _Open:
    deliver: Callable[[Result], None]
    answered: bool = False
    """The worker that was called has answered; a second answer breaks invariant 12."""
    closed: bool = False
    """The caller has its answer or has given up."""


class Network:
    def __init__(self, world: World) -> None:
        self._world = world
        self._schedule = world.schedule
        self._open: dict[str, _Open] = {}
        self._count = 0

    def call(
        self,
        caller: Worker,
        token: int,
        url: str,
        call: Call,
        hops: int,
        timeout_ms: int,
    ) -> None:
        def deliver(result: Result) -> None:
            caller.when_awake(lambda: caller.post(PeerAnswered(token, result)))

        self.send(url, call, hops, timeout_ms, deliver)

    def send(
        self,
        url: str,
        call: Call,
        hops: int,
        timeout_ms: int,
        deliver: Callable[[Result], None],
    ) -> None:
        """Ask the worker at `url`; `deliver` gets one result, by TIMEOUT at the latest."""
        self._count += 1
        call_id = f"call-{self._count}"
        entry = self._open[call_id] = _Open(deliver)
        copy = wire.loads(Call, wire.dumps(call))
        deadline = self._schedule.now_ms + timeout_ms

        def arrive() -> None:
            target = self._world.worker_at(url)
            if target is not None:
                target.when_awake(lambda: target.ask(call_id, copy, hops, deadline))

        if not self._world.message_lost():
            self._schedule.soon(arrive, 50)
        late = Failure(ErrorKind.TIMEOUT, f"{url} did not answer in {timeout_ms} ms")
        self._schedule.after(timeout_ms, lambda: self._close(entry, late))

    def answer(self, call_id: str, result: Result) -> None:
        entry = self._open.get(call_id)
        if entry is None:
            return
        self._world.checks.answered(call_id, entry.answered)
        entry.answered = True
        copy = wire.loads(Success | Failure, wire.dumps(result))
        if not self._world.message_lost():
            self._schedule.soon(lambda: self._close(entry, copy), 50)

    def _close(self, entry: _Open, result: Result) -> None:
        if not entry.closed:
            entry.closed = True
            entry.deliver(result)
