"""Fencing rounds, run by the leader: fence the producers of older task generations, then write the
task count record, which says how many producers there may be from then on.

A connector has one round at a time; a request that comes meanwhile joins it. A newer commit cancels
the round. Source: KIP-618; Connect's ZombieFencing in DistributedHerder.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from headgate.herder.context import Context, CountRecorded, ForRound, Resolved, RoundDone, Unplaced
from headgate.herder.messages import ErrorKind, Failure, FenceProducers, Result, Success
from headgate.task.messages import TaskKind
from headgate.topics.fencing import FenceTasks, NothingToFence, fencing_requirement

FAILED = "Failed to perform zombie fencing"
CANCELLED = "Failed to complete zombie fencing because a new set of task configs was generated"
INCOMPLETE = (
    "Fencing failed because the task configs of connector {} are incomplete; they are written again"
)
NOT_READ = "Failed to read to end of config topic before performing zombie fencing"


class RoundPhase(StrEnum):
    READING = "reading"
    FENCING = "fencing"
    RECHECKING = "rechecking"
    RECORDING = "recording"


@dataclass(slots=True)
class FencingRound:
    connector: str
    token: int
    """Token of the answers to this round. Answers to a cancelled round have another."""
    tickets: list[int]
    phase: RoundPhase = RoundPhase.READING
    commit_offset: int | None = None
    """Task generation that the round is about. It is known once the log was read."""


class FencingRounds:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._rounds: dict[str, FencingRound] = {}
        self.done = self.failed = 0
        """Number of rounds that have fenced producers, and of those whose fencing failed."""

    def join(self, ticket: int, connector: str) -> None:
        """Begin a round of the connector, or join the one under way. Call it only while leading: a
        former leader must not fence the tasks of its successor."""
        found = self._rounds.get(connector)
        if found is not None:
            found.tickets.append(ticket)
            return
        token = self._ctx.token()
        self._rounds[connector] = FencingRound(connector, token, [ticket])
        self._ctx.read_to_end(ForRound(connector, token))

    def on_read(self, purpose: ForRound, error: str | None) -> None:
        fencing = self._rounds.get(purpose.connector)
        if fencing is None or fencing.token != purpose.token:
            return
        if error is not None:
            self._finish(fencing, Failure(ErrorKind.INTERNAL, f"{NOT_READ} ({error})"))
        elif fencing.phase is RoundPhase.READING:
            self._begin(fencing)
        elif fencing.phase is RoundPhase.RECHECKING:
            self._record(fencing)

    def _begin(self, fencing: FencingRound) -> None:
        name, state = fencing.connector, self._ctx.state
        entry = state.entry(name)
        if entry is None or entry.config is None:
            self._finish(fencing, Failure(ErrorKind.NOT_FOUND, f"Connector {name} not found"))
            return
        if self._ctx.settings.kind(entry.config) is not TaskKind.SOURCE:
            text = f"Connector {name} is not a source connector"
            self._finish(fencing, Failure(ErrorKind.BAD_REQUEST, text))
            return
        if entry.inconsistent:
            # No task can start, and no tasks have ever run by the count of this commit.
            self._finish(fencing, Failure(ErrorKind.CONFLICT, INCOMPLETE.format(name)))
            return
        fencing.commit_offset = entry.commit_offset
        match fencing_requirement(state, name, self._ctx.settings.group):
            case NothingToFence():
                self._finish(fencing, Success())
            case FenceTasks(transactional_ids=ids) if ids:
                fencing.phase = RoundPhase.FENCING
                self._ctx.emit(FenceProducers(fencing.token, name, ids))
            case _:
                self._record(fencing)

    def on_fenced(self, token: int, error: str | None) -> None:
        fencing = next((r for r in self._rounds.values() if r.token == token), None)
        if fencing is None or fencing.phase is not RoundPhase.FENCING:
            return
        if error is not None:
            self.failed += 1
            self._finish(fencing, Failure(ErrorKind.INTERNAL, f"{FAILED}: {error}"))
            return
        self.done += 1
        fencing.phase = RoundPhase.RECHECKING
        self._ctx.read_to_end(ForRound(fencing.connector, fencing.token))

    def _record(self, fencing: FencingRound) -> None:
        """Ask the leader's lane to write the task count record. A newer commit that was read during
        the round has cancelled it. One that comes before the count is written is found where that
        write is decided (`privileged.RecordCount`)."""
        assert fencing.commit_offset is not None  # without a commit there is nothing to record
        fencing.phase = RoundPhase.RECORDING
        self._ctx.note(RoundDone(fencing.connector, fencing.commit_offset))

    def on_recorded(self, note: CountRecorded) -> None:
        fencing = self._rounds.get(note.connector)
        if fencing is None or fencing.phase is not RoundPhase.RECORDING:
            return
        if note.commit_offset != fencing.commit_offset:
            return  # it answers a round that was given up, about other task configs
        if note.error is None:
            self._finish(fencing, Success())
        else:
            kind = ErrorKind.CONFLICT if note.overtaken else ErrorKind.INTERNAL
            self._finish(fencing, Failure(kind, note.error))

    def on_commit(self, connector: str) -> None:
        """Cancel the round if the connector has new task configs or is gone. It would fence the
        wrong producers, or claim that it did."""
        fencing = self._rounds.get(connector)
        if fencing is None or fencing.phase is RoundPhase.READING:
            return
        entry = self._ctx.state.entry(connector)
        if entry is None or entry.commit_offset != fencing.commit_offset:
            self._finish(fencing, Failure(ErrorKind.CONFLICT, CANCELLED))

    def give_up(self) -> None:
        """Give up all rounds, because this worker does not lead any more. Their calls are routed
        again."""
        for fencing in self._rounds.values():
            for ticket in fencing.tickets:
                self._ctx.note(Unplaced(ticket))
        self._rounds.clear()

    def _finish(self, fencing: FencingRound, result: Result) -> None:
        del self._rounds[fencing.connector]
        for ticket in fencing.tickets:
            self._ctx.note(Resolved(ticket, result))

    def has(self, ticket: int) -> bool:
        return any(ticket in each.tickets for each in self._rounds.values())

    def disagreements(self) -> Iterator[str]:
        """Yield, in words, where rounds wait for something that will not come."""
        if self._rounds and not self._ctx.membership.is_leader:
            yield f"rounds of fencing of {list(self._rounds)} on a worker that does not lead"
        for name, each in self._rounds.items():
            if each.connector != name or len(set(each.tickets)) != len(each.tickets):
                yield f"round of {each.connector} is held as {name}, for {each.tickets}"
            reads = each.phase in (RoundPhase.READING, RoundPhase.RECHECKING)
            if reads and not self._ctx.is_read(ForRound(name, each.token)):
                yield f"round of {name} is {each.phase.value}, and nobody reads"
            if each.phase is RoundPhase.FENCING:
                entry = self._ctx.state.entry(name)
                if entry is None or entry.commit_offset != each.commit_offset:
                    yield f"round of {name} fences for commit {each.commit_offset}, not in force"

    @property
    def pending(self) -> list[str]:
        return [f"fencing {name}: {r.phase.value}" for name, r in self._rounds.items()]
