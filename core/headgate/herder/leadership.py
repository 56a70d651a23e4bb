"""The leader's hold on the config topic: claim it, write one decision at a time, read back.

A worker that becomes leader of a generation claims the log, reads it to its end, and only then
decides. After the claim no other worker writes privileged records, so the leader has read all there
are. A leader that also led the generation just before, and lost no write, does not read again:
nobody led in between.

Each connector has a *lane*, with at most one write under way. The next write is decided once the
reader has passed the one before. A lane can also be held, so that nothing is written about the
connector meanwhile. Source: KIP-618 (leader access to the config topic), `KafkaConfigBackingStore`.

Differs: if a write finds the claim overtaken while the group still calls this worker its leader,
the claim is made again and the write is decided again. Java answers 500, and one of its paths never
reclaims. After a write without an answer the claim is made again, too, but that write is not
decided again.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias, assert_never

from headgate.herder.context import (
    ClaimAgain,
    Context,
    CountRecorded,
    ForClaim,
    ForReadBack,
    ForUnchanged,
    LaneHeld,
    LookAgain,
    ReadAgain,
    Resolved,
    SessionKeyWritten,
    Unplaced,
    retry_delay_ms,
)
from headgate.herder.messages import (
    AppendConfig,
    ClaimLeadership,
    ConfigAppended,
    ConfigAppendFailed,
    CreateConnector,
    ErrorKind,
    Failure,
    LeadershipClaimed,
    PutConnectorConfig,
    Result,
    SetTargetState,
    Success,
)
from headgate.herder.privileged import (
    Decision,
    MergedPatch,
    Outdated,
    OwnWrite,
    PrivilegedCall,
    RecordCount,
    Write,
    WriteSessionKey,
    decide,
    etag_of,
    subject_of,
)
from headgate.membership.protocols import HEADGATE
from headgate.topics.config_records import Record

WRITE_FAILED = (
    "Failed to write to config topic; this may be due to a transient error and the request can be "
    "safely retried"
)


MAY_BE_WRITTEN = (
    "The change may have been written to the config topic, or not. Read the connector before you "
    "ask again: if it was written, the same etag is refused"
)

READ_FAILED = (
    "Failed to read the config topic to its end; nothing was written, and the request can be "
    "safely retried"
)

LEADER_CHANGED = Failure(ErrorKind.INTERNAL, "the leader has changed")


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


@dataclass(frozen=True, slots=True)
class HoldLane:
    """Hold the lane of `subject`: nothing is written about it until the lane is released."""

    ticket: int
    subject: str


Job: TypeAlias = CallJob | OwnWrite | HoldLane


@dataclass(slots=True)
class Lane:
    """Writes about one connector, in the order in which they were submitted."""

    subject: str
    current: Job | None = None
    answer: Success = field(default_factory=Success)
    """Answer to `current`, given once its records were read back."""
    then: tuple[Record, ...] = ()
    """Records that `current` still has to append before it is answered."""
    waiting: deque[Job] = field(default_factory=lambda: deque[Job]())
    looking: bool = False
    """The log is being read to its end, after which `current` is decided again."""
    looked: bool = False
    """The log was read to its end for the first waiting job."""


class Leadership:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._claim = Claim.NONE
        self._generation = -1
        self._failures = 0
        self._follows = False
        """The claim under way follows on one of this worker that was ready: nobody else wrote in
        between. By the same rule, the log on Kafka keeps its leader's producer
        (`LeaderWriter.claim`)."""
        self.error_text = ""
        """Why the last attempt at this claim failed. Empty: none has failed yet."""
        self.claim_count = 0
        """Number of claims completed. It tells whether the claim is still the same, unbroken."""
        self.terms = 0
        """How often this worker has ceased to lead."""
        self._lanes: dict[str, Lane] = {}
        self._appends: dict[int, Lane] = {}
        self._read_back: list[tuple[int, int, Lane]] = []
        """Heap of (config offset to be reached, order, lane)."""

    @property
    def ready(self) -> bool:
        return self._claim is Claim.READY

    # -- the claim --

    def membership_changed(self) -> None:
        membership = self._ctx.membership
        if not membership.is_leader:
            self.terms += self._claim is not Claim.NONE
            self._claim = Claim.NONE
            self._generation = -1
            self._give_up_waiting()
        elif membership.generation != self._generation:
            self._follows = self.ready and membership.generation == self._generation + 1
            self._generation = membership.generation
            self._failures = 0
            self.error_text = ""
            self._begin()

    def _begin(self) -> None:
        self._claim = Claim.CLAIMING
        self._ctx.emit(ClaimLeadership(self._generation))

    def on_claimed(self, answer: LeadershipClaimed) -> bool:
        """Handle the answer to a claim. Return whether this worker leads from now on."""
        if answer.generation != self._generation or self._claim is not Claim.CLAIMING:
            return False
        if answer.error is not None:
            self.error_text = answer.error
            self._claim_later()
            return False
        self.error_text = ""
        if self._follows:
            self._lead()
            return True
        self._read_all()
        return False

    def _claim_later(self) -> None:
        self._failures += 1
        self._follows = False
        self._claim = Claim.WAITING
        self._ctx.after(retry_delay_ms(self._failures), ClaimAgain(self._generation))

    def claim_again(self, generation: int) -> None:
        if generation == self._generation and self._claim is Claim.WAITING:
            self._begin()

    def _read_all(self) -> None:
        self._claim = Claim.READING
        self._ctx.read_to_end(ForClaim(self._generation))

    def on_all_read(self, generation: int, error: str | None) -> bool:
        """Handle the end of the log. Return whether this worker leads from now on."""
        if generation != self._generation or self._claim is not Claim.READING:
            return False
        if error is not None:
            self.error_text = error
            self._ctx.after(retry_delay_ms(1), ReadAgain(ForClaim(generation)))
            return False
        self._lead()
        return True

    def _lead(self) -> None:
        self._claim = Claim.READY
        self.claim_count += 1
        self._failures = 0
        self.error_text = ""
        for lane in list(self._lanes.values()):
            self._run(lane)

    # -- lanes --

    def submit(self, job: Job) -> None:
        """Queue a job in its lane. It is decided and written when its turn comes."""
        subject = _subject(job)
        lane = self._lanes.setdefault(subject, Lane(subject))
        lane.waiting.append(job)
        self._run(lane)

    def _run(self, lane: Lane) -> None:
        while self.ready and lane.current is None and lane.waiting:
            job = lane.waiting.popleft()
            if isinstance(job, HoldLane):
                lane.current = job
                self._ctx.note(LaneHeld(job.ticket, job.subject))
                return
            call = job.call if isinstance(job, CallJob) else job
            java = self._ctx.membership.protocol != HEADGATE
            decision = decide(self._ctx.state, call, self._ctx.settings, java=java)
            if isinstance(job, CallJob) and not lane.looked and _must_look(job.call, decision):
                lane.current, lane.looking = job, True
                self._ctx.read_to_end(ForUnchanged(lane.subject))
            elif isinstance(decision, Write):
                lane.current, lane.answer, lane.then = job, decision.answer, decision.then
                self._append(lane, decision.records)
            elif isinstance(decision, Outdated):
                assert isinstance(job, CallJob)
                self._ctx.note(LookAgain(job.ticket))
            else:
                self._done(job, decision)
            lane.looked = False
        if lane.current is None and not lane.waiting:
            self._lanes.pop(lane.subject, None)

    def on_unchanged_read(self, subject: str, error: str | None) -> None:
        """Decide a job again, after the log was read to its end for it.

        A leader that was overtaken without knowing it is refused its writes, but not an answer
        without a write. The log now has what the later leader wrote. It also has every pause that
        another worker wrote before a call with an etag came.
        """
        lane = self._lanes.get(subject)
        if lane is None or not lane.looking:
            return
        job, lane.current, lane.looking = lane.current, None, False
        assert job is not None
        if error is None:
            lane.looked = True
            self._decide_again(lane, job)
            return
        self._done(job, Failure(ErrorKind.INTERNAL, f"{READ_FAILED} ({error})"))
        self._go_on(lane)

    def _decide_again(self, lane: Lane, job: Job) -> None:
        """Put a job first in its lane, to be decided again. Another worker may have led and written
        since: the log was read on, or is being read for a claim of this worker."""
        lane.waiting.appendleft(job)
        self._go_on(lane)

    def _go_on(self, lane: Lane) -> None:
        if self._ctx.membership.is_leader:
            self._run(lane)
        else:
            self._give_up_waiting()

    def release(self, ticket: int, subject: str) -> None:
        """Release the lane that is held for `ticket`, or the turn waiting for it. Otherwise do
        nothing."""
        lane = self._lanes.get(subject)
        if lane is None:
            return
        hold = HoldLane(ticket, subject)
        if lane.current == hold:
            lane.current = None
            self._run(lane)
        elif hold in lane.waiting:
            lane.waiting.remove(hold)

    def _append(self, lane: Lane, records: tuple[Record, ...]) -> None:
        token = self._ctx.token()
        self._appends[token] = lane
        self._ctx.emit(AppendConfig(token, records, privileged=True))

    def on_appended(self, answer: ConfigAppended) -> bool:
        """Handle the answer to an append. Return whether the append was one of the leader's."""
        lane = self._appends.pop(answer.token, None)
        if lane is None:
            return False
        heapq.heappush(self._read_back, (answer.end, answer.token, lane))
        if self._ctx.state.offset < answer.end:
            self._ctx.read_to_end(ForReadBack())
        self.on_config_read()
        return True

    def on_config_read(self) -> None:
        """Finish the writes whose records this worker's reader has passed."""
        while self._read_back and self._read_back[0][0] <= self._ctx.state.offset:
            end, _, lane = heapq.heappop(self._read_back)
            records, lane.then = lane.then, ()
            if records and self.ready:
                self._append(lane, records)
                continue
            job, lane.current = lane.current, None
            assert job is not None
            if records:
                self._decide_again(lane, job)
                continue
            self._done(job, _written(job, lane.answer, end))
            self._run(lane)

    def on_append_failed(self, answer: ConfigAppendFailed) -> bool:
        """Handle the failure of an append. Return whether the append was one of the leader's."""
        lane = self._appends.pop(answer.token, None)
        if lane is None:
            return False
        self._follows = False
        job, lane.current = lane.current, None
        assert job is not None
        if answer.fenced:
            # Nothing was written. Decide it again, here or wherever the leader is by then.
            lane.waiting.appendleft(job)
            if self._ctx.membership.is_leader and self._claim is not Claim.WAITING:
                self._claim_later()
            elif not self._ctx.membership.is_leader:
                self._give_up_waiting()
            return True
        self._done(job, _write_failure(job, answer))
        if self.ready:
            # The records may be in the log. Or their transaction is still open, and readers wait at
            # it. A new claim ends that transaction, and the log is read after it.
            self._claim_later()
        if not lane.waiting:
            self._lanes.pop(lane.subject, None)
        return True

    def _give_up_waiting(self) -> None:
        for lane in list(self._lanes.values()):
            waiting, lane.waiting = lane.waiting, deque()
            for job in waiting:
                if isinstance(job, CallJob | HoldLane):
                    self._ctx.note(Unplaced(job.ticket))
                else:
                    self._done(job, LEADER_CHANGED)
            if lane.current is None:
                self._lanes.pop(lane.subject, None)

    def _done(self, job: Job, result: Result) -> None:
        match job:
            case CallJob(ticket):
                self._ctx.note(Resolved(ticket, result))
            case WriteSessionKey():
                self._ctx.note(SessionKeyWritten(isinstance(result, Success)))
            case RecordCount(connector, commit_offset):
                error = None if isinstance(result, Success) else result.message
                overtaken = isinstance(result, Failure) and result.kind is ErrorKind.CONFLICT
                self._ctx.note(CountRecorded(connector, commit_offset, error, overtaken))
            case HoldLane():
                raise AssertionError("let go, not done")
            case _:
                assert_never(job)

    def has(self, ticket: int) -> bool:
        """Return whether a write for the call is waiting or under way, or a hold of a lane is."""
        return any(
            isinstance(job, CallJob | HoldLane) and job.ticket == ticket
            for lane in self._lanes.values()
            for job in (lane.current, *lane.waiting)
        )

    def holders(self) -> Iterator[int]:
        """Yield the tickets for which lanes are held."""
        for lane in self._lanes.values():
            if isinstance(lane.current, HoldLane):
                yield lane.current.ticket

    def disagreements(self) -> Iterator[str]:
        """Yield, in words, where lanes, writes and the claim contradict each other."""
        membership = self._ctx.membership
        if (self._claim is Claim.NONE) is membership.is_leader:
            yield f"claim {self._claim.value}; leads: {membership.is_leader}"
        if membership.is_leader and self._generation != membership.generation:
            yield f"claim of generation {self._generation} in {membership.generation}"
        if self._claim is Claim.READING and not self._ctx.is_read(ForClaim(self._generation)):
            yield "a claim waits for the end of the log, and nobody reads"
        written = [*self._appends.values(), *(lane for _, _, lane in self._read_back)]
        if len({id(lane) for lane in written}) != len(written):
            yield "two writes are under way in one lane"
        for lane in written:
            if lane.current is None or isinstance(lane.current, HoldLane):
                yield f"a write about {lane.subject} is under way that nobody asked for"
        for subject, lane in self._lanes.items():
            busy = isinstance(lane.current, HoldLane) or lane.looking
            if lane.subject != subject:
                yield f"lane {lane.subject} is held as {subject}"
            if lane.current is None and (self.ready or not lane.waiting):
                yield f"lane {subject} is idle with {len(lane.waiting)} jobs"
            if lane.current is not None and not busy and all(lane is not one for one in written):
                yield f"lane {subject} waits for a write that is not under way"

    @property
    def pending(self) -> list[str]:
        if self._claim in (Claim.NONE, Claim.READY):
            return [f"writing {name}" for name in self._lanes]
        return [f"leadership: {self._claim.value}"]


def _must_look(call: PrivilegedCall, decision: Decision) -> bool:
    """Return whether the log must be read to its end before `decision` holds. It must if an etag is
    compared, or if the answer, without a write, says that something is absent, there, or as asked
    already."""
    if etag_of(call) is not None:
        return True
    if isinstance(decision, Failure):
        return decision.kind in (ErrorKind.NOT_FOUND, ErrorKind.ALREADY_EXISTS)
    return isinstance(decision, Success)


def _written(job: Job, answer: Success, end: int) -> Success:
    """Return `answer` to a job whose records end at the config offset `end`. If the job changes a
    config or target state, the last record does that, so `end` is also the etag."""
    changes = CreateConnector | PutConnectorConfig | MergedPatch | SetTargetState
    changed = isinstance(job, CallJob) and isinstance(job.call, changes)
    return replace(answer, config_offset=end, etag=end if changed else None)


def _subject(job: Job) -> str:
    if isinstance(job, HoldLane):
        return job.subject
    return subject_of(job.call if isinstance(job, CallJob) else job)


def _write_failure(job: Job, answer: ConfigAppendFailed) -> Failure:
    """Return the answer to a write that failed. Without an etag the caller may safely ask again, as
    Java says: the same change is made once more."""
    if answer.too_large:
        return Failure(ErrorKind.BAD_REQUEST, f"{WRITE_FAILED} ({answer.reason})")
    if isinstance(job, CallJob) and etag_of(job.call) is not None:
        return Failure(ErrorKind.TIMEOUT, f"{MAY_BE_WRITTEN} ({answer.reason})")
    return Failure(ErrorKind.INTERNAL, f"{WRITE_FAILED} ({answer.reason})")
