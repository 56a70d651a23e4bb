"""Changes of a connector's offsets by users, done by the leader. Source: KIP-875,
DistributedHerder.modifyConnectorOffsets.

    READING ─> FENCING ─> SETTLING ─> QUEUED ─> CHECKING ─> ALTERING ─> (CONFIRMING)
                                                   └──> FENCING, SETTLING again

The connector must be STOPPED and have no tasks, at the end of the config topic. Then its tasks must
be gone from every worker, which a round tells in which nobody reports them; where source tasks are
exactly-once, older producers are shut out first. From QUEUED on the connector's lane of the log is
held: what would give it tasks (or delete it) waits until the offsets are written, so that tasks
find either none of the change or all of it. It is let go when the call's time is over and the
connector's class has still not come back from its `alter_offsets`. After a change of leaders
nothing is held any more: a change is called done only if the log shows that no task configs came in
between.

Differs: Java refuses during a rebalance (409), and does not keep the connector from being resumed
while it writes; a connector that never had tasks can be reset as often as one likes. Input that
cannot be an offset is the user's fault (400; 500 in Java for source connectors).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from headgate.herder.context import Ask, Context, ForOffsets, FromOffsets, Resolved, Unplaced
from headgate.herder.leadership import HoldLane, Leadership
from headgate.herder.messages import (
    AlterConnectorOffsets,
    AlterOffsets,
    ConnectorOffsetsAltered,
    ErrorKind,
    Failure,
    FenceConnector,
    GiveUpAlteration,
    Result,
    Success,
)
from headgate.herder.offset_previews import ChangeCall, change_refusal, given_changes
from headgate.herder.reads import not_found
from headgate.membership.member import Member
from headgate.task.messages import TaskKind
from headgate.topics.fencing import transactional_id

NOT_READ: Final = "Failed to read to end of config topic before modifying connector offsets"
NOT_FENCED: Final = (
    "Failed to perform zombie fencing for source connector prior to modifying offsets"
)
STARTED_MEANWHILE: Final = (
    "The leader changed while the offsets of connector {} were being modified, and the connector "
    "got other tasks, or was deleted. Its tasks may have found the offsets as they were before and "
    "gone on from there. Stop the connector, and look at its offsets."
)


class Step(StrEnum):
    READING = "reading"
    FENCING = "fencing"
    SETTLING = "settling"
    """The connector's tasks may still be alive somewhere."""
    QUEUED = "queued"
    """For its lane."""
    CHECKING = "checking"
    ALTERING = "altering"
    CONFIRMING = "confirming"


@dataclass(slots=True)
class Change:
    ticket: int
    token: int
    """Token of the answer that is awaited: any other answer is stale."""
    call: ChangeCall
    step: Step = Step.READING
    commit_offset: int | None = None
    """Offset of the commit that left the connector without tasks; ALTERING and later."""
    claim: int = 0
    """Claim on the log under which the change was begun."""
    result: Success = field(default_factory=Success)
    """CONFIRMING: what it is answered if all is well."""


class OffsetChanges:
    def __init__(self, ctx: Context, leadership: Leadership, member: Member) -> None:
        self._ctx = ctx
        self._leadership = leadership
        self._member = member
        self._open: dict[int, Change] = {}

    def begin(self, ticket: int, call: ChangeCall) -> None:
        """Only while leading. Ends in `Resolved` or `Unplaced`."""
        change = self._open[ticket] = Change(ticket, 0, call)
        self._read(change, Step.READING)

    def closed(self, ticket: int) -> None:
        """Nobody waits for it any more. What is being written is written to its end; a class that
        does not come back from its `alter_offsets` keeps nobody waiting."""
        change = self._open.get(ticket)
        if change is None:
            return
        if change.step is Step.ALTERING:
            self._ctx.emit(GiveUpAlteration(change.token))
        else:
            self._drop(change)

    def give_up(self) -> None:
        """No longer the leader. What waits for its lane is told so by the lane."""
        for change in list(self._open.values()):
            if change.step in (Step.ALTERING, Step.CONFIRMING):
                continue
            self._drop(change)
            if change.step is not Step.QUEUED:
                self._ctx.note(Unplaced(change.ticket))

    def has(self, ticket: int) -> bool:
        return ticket in self._open

    def disagreements(self) -> Iterator[str]:
        """Where a change waits for what will not come, or is waited for, in words."""
        for ticket in self._leadership.holders():
            if ticket not in self._open:
                yield f"a lane is held for change of offsets {ticket}, which is over"
        for ticket, change in self._open.items():
            what = f"change of offsets {ticket} is {change.step.value}"
            if change.ticket != ticket:
                yield f"change of offsets {change.ticket} is held as {ticket}"
            purpose = ForOffsets(ticket, change.token)
            if change.step in (Step.READING, Step.CHECKING) and not self._ctx.is_read(purpose):
                yield f"{what}, and nobody reads"
            held = change.step in (Step.QUEUED, Step.CHECKING, Step.ALTERING)
            if held and self._leadership.ready and not self._leadership.has(ticket):
                yield f"{what}, and has no turn in a lane"

    def membership_changed(self) -> None:
        """A round has ended: nobody may be left who has tasks of the connector."""
        for change in list(self._open.values()):
            if change.step is Step.SETTLING:
                self._settle(change)

    def on_config(self, name: str) -> None:
        """The log said something of the connector."""
        for change in list(self._open.values()):
            if change.step is Step.SETTLING and change.call.name == name:
                self._settle(change)

    # -- step by step --

    def _await(self, change: Change, step: Step) -> int:
        change.step = step
        change.token = self._ctx.token()
        return change.token

    def _awaiting(self, ticket: int, token: int) -> Change | None:
        change = self._open.get(ticket)
        return change if change is not None and change.token == token else None

    def _read(self, change: Change, step: Step) -> None:
        self._ctx.read_to_end(ForOffsets(change.ticket, self._await(change, step)))

    def on_read(self, purpose: ForOffsets, error: str | None) -> None:
        change = self._awaiting(purpose.ticket, purpose.token)
        if change is None:
            return
        if error is not None:
            self._finish(change, Failure(ErrorKind.INTERNAL, f"{NOT_READ} ({error})"))
        elif change.step is Step.CONFIRMING:
            self._confirm(change)
        elif change.step is Step.CHECKING:
            self._alter(change)
        elif (refusal := self._refusal(change.call)) is not None:
            self._finish(change, refusal)
        else:
            self._fence(change)

    def _fence(self, change: Change) -> None:
        if self._exactly_once(change.call.name):
            origin = FromOffsets(change.ticket, self._await(change, Step.FENCING))
            self._ctx.note(Ask(origin, FenceConnector(change.call.name)))
        else:
            self._settle(change)

    def on_fencing_result(self, origin: FromOffsets, result: Result) -> None:
        change = self._awaiting(origin.ticket, origin.token)
        if change is None:
            return
        if isinstance(result, Success):
            self._settle(change)
        elif result.kind is ErrorKind.TIMEOUT:
            self._fence(change)  # the round goes on: join it again, while somebody waits for this
        else:
            self._finish(change, Failure(result.kind, f"{NOT_FENCED}: {result.message}"))

    def _settle(self, change: Change) -> None:
        refusal = self._refusal(change.call)
        if refusal is not None:
            self._finish(change, refusal)
        elif self._settled(change.call.name):
            self._await(change, Step.QUEUED)
            self._leadership.submit(HoldLane(change.ticket, change.call.name))
        else:
            self._await(change, Step.SETTLING)

    def _settled(self, name: str) -> bool:
        """No task of it is alive on any member, as far as they can tell."""
        return self._ctx.membership.stable and not self._member.releasing(name)

    def on_lane_held(self, ticket: int, name: str) -> None:
        change = self._open.get(ticket)
        if change is None or change.step is not Step.QUEUED:
            self._leadership.release(ticket, name)
        else:
            self._read(change, Step.CHECKING)

    def _alter(self, change: Change) -> None:
        """The lane is held and the log was read: what holds now, holds until the lane is let go."""
        call, ctx = change.call, self._ctx
        entry = ctx.state.entry(call.name)
        refusal = self._refusal(call)
        if refusal is not None or entry is None or entry.config is None:
            self._finish(change, refusal or not_found(call.name))
            return
        if not self._settled(call.name):
            # A commit came between, from who led before: it is to be fenced for, too.
            self._leadership.release(change.ticket, call.name)
            self._fence(change)
            return
        kind = ctx.settings.kind(entry.config)
        offsets = given_changes(call, kind)
        if isinstance(offsets, Failure):
            self._finish(change, offsets)
            return
        change.commit_offset = entry.commit_offset
        change.claim = self._leadership.claim_count
        ctx.emit(
            AlterConnectorOffsets(
                token=self._await(change, Step.ALTERING),
                connector=call.name,
                config=entry.config,
                kind=kind,
                offsets=offsets,
                transactional_id=transactional_id(ctx.settings.group, call.name, 0)
                if self._exactly_once(call.name)
                else None,
                member_id=ctx.membership.member_id,
                generation=ctx.membership.generation,
                commit_offset=entry.commit_offset,
            )
        )

    def on_altered(self, answer: ConnectorOffsetsAltered) -> None:
        change = next((c for c in self._open.values() if c.token == answer.token), None)
        if change is None or change.step is not Step.ALTERING:
            return
        if answer.failure is not None:
            self._finish(change, answer.failure)
            return
        result = Success({"message": _message(change.call, handled=answer.handled)})
        if self._leadership.ready and self._leadership.claim_count == change.claim:
            self._finish(change, result)
        else:
            change.result = result
            self._read(change, Step.CONFIRMING)

    def _confirm(self, change: Change) -> None:
        name = change.call.name
        entry = self._ctx.state.entry(name)
        if entry is not None and entry.commit_offset == change.commit_offset:
            self._finish(change, change.result)
        else:
            text = STARTED_MEANWHILE.format(name)
            self._finish(change, Failure(ErrorKind.CONFLICT, text))

    def _finish(self, change: Change, result: Result) -> None:
        self._drop(change)
        self._ctx.note(Resolved(change.ticket, result))

    def _drop(self, change: Change) -> None:
        del self._open[change.ticket]
        self._leadership.release(change.ticket, change.call.name)

    # -- what is asked of the connector --

    def _refusal(self, call: ChangeCall) -> Failure | None:
        return change_refusal(self._ctx.state, call)

    def _exactly_once(self, name: str) -> bool:
        entry, settings = self._ctx.state.entry(name), self._ctx.settings
        if entry is None or entry.config is None:
            return False
        return settings.exactly_once and settings.kind(entry.config) is TaskKind.SOURCE

    @property
    def pending(self) -> list[str]:
        return [f"offsets of {c.call.name}: {c.step.value}" for c in self._open.values()]


def _message(call: ChangeCall, *, handled: bool) -> str:
    done = "altered" if isinstance(call, AlterOffsets) else "reset"
    if handled:
        return f"The offsets for this connector have been {done} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {done} successfully. "
        "However, if this connector manages offsets externally, they will need to be manually "
        f"{done} in the system that the connector uses."
    )
