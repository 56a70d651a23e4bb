"""The leader's hold on the config topic: claim it, write to it one decision at a time, read back.

A worker that finds itself leader of a generation claims the log, reads it to its end, and only then
decides: from there on nobody else writes privileged records, so what it has read is all there is.
For each connector one write is under way at a time (a *lane*), and the next is decided once the
reader has passed the one before. Source: KIP-618 (leader access to the config topic),
`KafkaConfigBackingStore`.

Differs: whichever write finds that the claim was overtaken, the claim is made anew while the group
still calls this worker its leader, and the write is decided again (Java answers 500, and one path
never reclaims).
"""

import heapq
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from headgate.herder.context import (
    ClaimAgain,
    Context,
    CountRecorded,
    ForClaim,
    ForReadBack,
    ReadAgain,
    Resolved,
    Unplaced,
    retry_delay_ms,
)
from headgate.herder.messages import (
    AppendConfig,
    ClaimLeadership,
    ConfigAppended,
    ConfigAppendFailed,
    ErrorKind,
    Failure,
    LeadershipClaimed,
    Result,
    Success,
)
from headgate.herder.privileged import (
    PrivilegedCall,
    RecordCount,
    Write,
    connector_of,
    decide,
)

WRITE_FAILED = (
    "Failed to write to config topic; this may be due to a transient error and the request can be "
    "safely retried"
)


class Claim(StrEnum):
    NONE = "none"
    """Not the leader."""
    CLAIMING = "claiming"
    WAITING = "waiting to claim again"
    READING = "reading to the end"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class CallJob:
    ticket: int
    call: PrivilegedCall


Job: TypeAlias = CallJob | RecordCount


@dataclass(slots=True)
class Lane:
    """Writes about one connector, in the order they were asked."""

    connector: str
    current: Job | None = None
    answer: Success = field(default_factory=Success)
    """What `current` is answered once it was read back."""
    waiting: deque[Job] = field(default_factory=lambda: deque[Job]())


class Leadership:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._claim = Claim.NONE
        self._generation = -1
        self._failures = 0
        self._lanes: dict[str, Lane] = {}
        self._appends: dict[int, Lane] = {}
        self._read_back: list[tuple[int, int, Lane]] = []
        """Heap of (config offset to be reached, order, lane)."""

    @property
    def ready(self) -> bool:
        return self._claim is Claim.READY

    # -- the claim --

    def standing_changed(self) -> None:
        standing = self._ctx.standing
        if not standing.is_leader:
            self._claim = Claim.NONE
            self._generation = -1
            self._give_up_waiting()
        elif standing.generation != self._generation:
            self._generation = standing.generation
            self._failures = 0
            self._begin()

    def _begin(self) -> None:
        self._claim = Claim.CLAIMING
        self._ctx.emit(ClaimLeadership(self._generation))

    def on_claimed(self, answer: LeadershipClaimed) -> None:
        if answer.generation != self._generation or self._claim is not Claim.CLAIMING:
            return
        if answer.error is not None:
            self._claim_later()
            return
        self._read_all()

    def _claim_later(self) -> None:
        self._failures += 1
        self._claim = Claim.WAITING
        self._ctx.after(retry_delay_ms(self._failures), ClaimAgain(self._generation))

    def claim_again(self, generation: int) -> None:
        if generation == self._generation and self._claim is Claim.WAITING:
            self._begin()

    def _read_all(self) -> None:
        self._claim = Claim.READING
        self._ctx.read_to_end(ForClaim(self._generation))

    def on_all_read(self, generation: int, error: str | None) -> bool:
        """Whether this worker leads from now on."""
        if generation != self._generation or self._claim is not Claim.READING:
            return False
        if error is not None:
            self._ctx.after(retry_delay_ms(1), ReadAgain(ForClaim(generation)))
            return False
        self._claim = Claim.READY
        self._failures = 0
        for lane in list(self._lanes.values()):
            self._run(lane)
        return True

    # -- lanes --

    def submit(self, job: Job) -> None:
        """Decide and write, as soon as it is its turn."""
        name = connector_of(job.call if isinstance(job, CallJob) else job)
        lane = self._lanes.setdefault(name, Lane(name))
        lane.waiting.append(job)
        self._run(lane)

    def _run(self, lane: Lane) -> None:
        while self.ready and lane.current is None and lane.waiting:
            job = lane.waiting.popleft()
            call = job.call if isinstance(job, CallJob) else job
            decision = decide(self._ctx.state, call, self._ctx.settings)
            if isinstance(decision, Write):
                lane.current, lane.answer = job, decision.answer
                token = self._ctx.token()
                self._appends[token] = lane
                self._ctx.emit(AppendConfig(token, decision.records, privileged=True))
            else:
                self._done(job, decision)
        if lane.current is None and not lane.waiting:
            self._lanes.pop(lane.connector, None)

    def on_appended(self, answer: ConfigAppended) -> bool:
        """Whether the append was one of ours."""
        lane = self._appends.pop(answer.token, None)
        if lane is None:
            return False
        heapq.heappush(self._read_back, (answer.end, answer.token, lane))
        if self._ctx.state.offset < answer.end:
            self._ctx.read_to_end(ForReadBack())
        self.on_config_read()
        return True

    def on_config_read(self) -> None:
        """Our reader has come further: what it has passed is done."""
        while self._read_back and self._read_back[0][0] <= self._ctx.state.offset:
            _, _, lane = heapq.heappop(self._read_back)
            job, lane.current = lane.current, None
            assert job is not None
            self._done(job, lane.answer)
            self._run(lane)

    def on_append_failed(self, answer: ConfigAppendFailed) -> bool:
        """Whether the append was one of ours."""
        lane = self._appends.pop(answer.token, None)
        if lane is None:
            return False
        job, lane.current = lane.current, None
        assert job is not None
        if answer.fenced:
            # Nothing was written. Decide it again, here or wherever the leader is by then.
            lane.waiting.appendleft(job)
            if self._ctx.standing.is_leader and self._claim is not Claim.WAITING:
                self._claim_later()
            elif not self._ctx.standing.is_leader:
                self._give_up_waiting()
            return True
        self._done(job, Failure(ErrorKind.INTERNAL, f"{WRITE_FAILED} ({answer.reason})"))
        if self.ready:
            self._read_all()  # it may have been written all the same
        if not lane.waiting:
            self._lanes.pop(lane.connector, None)
        return True

    def _give_up_waiting(self) -> None:
        for lane in list(self._lanes.values()):
            waiting, lane.waiting = lane.waiting, deque()
            for job in waiting:
                if isinstance(job, CallJob):
                    self._ctx.note(Unplaced(job.ticket))
                else:
                    self._ctx.note(
                        CountRecorded(job.connector, job.commit_offset, "the leader has changed")
                    )
            if lane.current is None:
                self._lanes.pop(lane.connector, None)

    def _done(self, job: Job, result: Result) -> None:
        if isinstance(job, CallJob):
            self._ctx.note(Resolved(job.ticket, result))
        elif isinstance(result, Success):
            self._ctx.note(CountRecorded(job.connector, job.commit_offset, None))
        else:
            overtaken = result.kind is ErrorKind.CONFLICT
            self._ctx.note(
                CountRecorded(job.connector, job.commit_offset, result.message, overtaken)
            )

    @property
    def pending(self) -> list[str]:
        if self._claim in (Claim.NONE, Claim.READY):
            return [f"writing {name}" for name in self._lanes]
        return [f"leadership: {self._claim.value}"]
