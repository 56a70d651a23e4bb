"""Changes of a connector's offsets by users, done by the leader. Source: KIP-875,
DistributedHerder.modifyConnectorOffsets.

    READING ─> FENCING ─> SETTLING ─> QUEUED ─> CHECKING ─> ALTERING ─> (CONFIRMING)
                                                   └──> FENCING, SETTLING again

The config topic, read to its end, must show that the connector is STOPPED and has no tasks. Where
source tasks are exactly-once, older producers are fenced. Then the connector's tasks must be gone
from every worker, as shown by a round in which no member reports them.

From CHECKING on the change holds the connector's lane of the log. A write that would give the
connector tasks, or delete it, waits until the offsets are written, so that tasks find either none
of the change or all of it. If the call's time is over while the connector's class has still not
returned from its `alter_offsets`, the lane is released. After a change of leaders nothing is held
any more. A change then counts as done only if the log shows that no task configs came in between.

Offsets that a deleted connector has left are reset in the same way. There must be no connector of
the name, and one that is created meanwhile waits in the lane. The producers that the log has
recorded for the deleted connector are fenced. No task count is recorded, since there is no commit
that it would be about. The next tasks of the name fence them again. Source: an earlier text of
KIP-875.

Differs: Java refuses during a rebalance (409), and lets the connector be resumed while it writes. A
connector that never had tasks can be reset as often as one likes. Input that cannot be an offset is
the user's fault (400; 500 in Java for source connectors).
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
    FenceProducers,
    GiveUpAlteration,
    ResetDeletedOffsets,
    Result,
    Success,
)
from headgate.herder.offset_previews import (
    ChangeCall,
    change_refusal,
    given_changes,
    place_of_offsets,
)
from headgate.membership.member import Member
from headgate.task.messages import TaskKind
from headgate.topics.config_state import ConfigState
from headgate.topics.fencing import recorded_producers, transactional_id

NOT_READ: Final = "Failed to read to end of config topic before modifying connector offsets"
NOT_FENCED: Final = (
    "Failed to perform zombie fencing for source connector prior to modifying offsets"
)
STARTED_MEANWHILE: Final = (
    "The leader changed while the offsets of connector {} were being modified, and the connector "
    "got other tasks, or was deleted. Its tasks may have found the offsets as they were before and "
    "gone on from there. Stop the connector, and look at its offsets."
)


CREATED_MEANWHILE: Final = (
    "The leader changed while the offsets that connector {} has left were being reset, and a "
    "connector of that name was created. Its tasks may have found the offsets as they were before "
    "and gone on from there. Look at its offsets."
)


class Step(StrEnum):
    READING = "reading"
    FENCING = "fencing"
    SETTLING = "settling"
    """The connector's tasks may still be alive on some worker."""
    QUEUED = "queued"
    """The change waits for the connector's lane."""
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
    effect: AlterConnectorOffsets | None = None
    """Effect that was emitted; None before ALTERING."""
    task_generation: int | None = None
    """Task generation of a deleted connector when its producers were fenced. It is another one if a
    connector of the name had tasks since."""
    claim: int = 0
    """`Leadership.claim_count` when the offsets began to be altered."""
    result: Success = field(default_factory=Success)
    """Answer if the confirmation succeeds; set in CONFIRMING."""


class OffsetChanges:
    def __init__(self, ctx: Context, leadership: Leadership, member: Member) -> None:
        self._ctx = ctx
        self._leadership = leadership
        self._member = member
        self._open: dict[int, Change] = {}

    def begin(self, ticket: int, call: ChangeCall) -> None:
        """Begin a change. Call it only while leading. Ends in `Resolved` or `Unplaced`."""
        change = self._open[ticket] = Change(ticket, 0, call)
        self._read(change, Step.READING)

    def closed(self, ticket: int) -> None:
        """Drop a change that nobody waits for any more. A write that has begun is completed. A
        class that does not return from its `alter_offsets` keeps nobody waiting."""
        change = self._open.get(ticket)
        if change is None:
            return
        if change.step is Step.ALTERING:
            self._ctx.emit(GiveUpAlteration(change.token))
        else:
            self._drop(change)

    def give_up(self) -> None:
        """Give up changes that are not being written, because this worker does not lead any more.
        Calls that wait for a lane hear of it from the lane."""
        for change in list(self._open.values()):
            if change.step in (Step.ALTERING, Step.CONFIRMING):
                continue
            self._drop(change)
            if change.step is not Step.QUEUED:
                self._ctx.note(Unplaced(change.ticket))

    def has(self, ticket: int) -> bool:
        return ticket in self._open

    def disagreements(self) -> Iterator[str]:
        """Yield, in words, where a change or a lane waits for something that will not come."""
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
        """Check the changes in SETTLING again: a round may show that no worker has the tasks any
        more."""
        for change in list(self._open.values()):
            if change.step is Step.SETTLING:
                self._settle(change)

    def on_config(self, name: str) -> None:
        """Check the changes in SETTLING again, after records about the connector were read."""
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
        if isinstance(change.call, ResetDeletedOffsets):
            self._shut_out(change, change.call)
        elif self._exactly_once(change.call):
            origin = FromOffsets(change.ticket, self._await(change, Step.FENCING))
            self._ctx.note(Ask(origin, FenceConnector(change.call.name)))
        else:
            self._settle(change)

    def _shut_out(self, change: Change, call: ResetDeletedOffsets) -> None:
        """Fence the producers that may be left of the deleted connector."""
        state, settings = self._ctx.state, self._ctx.settings
        change.task_generation = _generation(state, call.name)
        ids = recorded_producers(state, call.name, settings.group)
        if ids and self._exactly_once(call):
            token = self._await(change, Step.FENCING)
            self._ctx.emit(FenceProducers(token, call.name, ids))
        else:
            self._settle(change)

    def on_fenced(self, token: int, error: str | None) -> None:
        """Handle that the producers of a deleted connector are fenced, or could not be."""
        change = next((c for c in self._open.values() if c.token == token), None)
        if change is None or change.step is not Step.FENCING:
            return
        if error is None:
            self._settle(change)
        else:
            self._finish(change, Failure(ErrorKind.INTERNAL, f"{NOT_FENCED}: {error}"))

    def on_fencing_result(self, origin: FromOffsets, result: Result) -> None:
        change = self._awaiting(origin.ticket, origin.token)
        if change is None:
            return
        if isinstance(result, Success):
            self._settle(change)
        elif result.kind is ErrorKind.TIMEOUT:
            self._fence(change)  # the fencing round goes on: join it again while the call is open
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
        """Return whether no task of the connector is alive on any member, as far as they report."""
        return self._ctx.membership.stable and not self._member.releasing(name)

    def on_lane_held(self, ticket: int, name: str) -> None:
        change = self._open.get(ticket)
        if change is None or change.step is not Step.QUEUED:
            self._leadership.release(ticket, name)
        else:
            self._read(change, Step.CHECKING)

    def _alter(self, change: Change) -> None:
        """Emit the effect that alters the offsets. The lane is held and the log was read: what is
        true now stays true until the lane is released."""
        call, ctx = change.call, self._ctx
        place = place_of_offsets(ctx.state, call, ctx.settings, log_read=True)
        assert place is not None, "the log was read"
        if isinstance(place, Failure):
            self._finish(change, place)
            return
        if not self._settled(call.name) or self._had_tasks(change):
            # The leader before wrote a commit in between, which needs fencing, too.
            self._leadership.release(change.ticket, call.name)
            self._fence(change)
            return
        offsets = given_changes(call, place.kind)
        if isinstance(offsets, Failure):
            self._finish(change, offsets)
            return
        entry = ctx.state.entry(call.name)
        change.claim = self._leadership.claim_count
        change.effect = AlterConnectorOffsets(
            token=self._await(change, Step.ALTERING),
            connector=call.name,
            config=place.config,
            kind=place.kind,
            offsets=offsets,
            transactional_id=transactional_id(ctx.settings.group, call.name, 0)
            if self._exactly_once(call)
            else None,
            member_id=ctx.membership.member_id,
            generation=ctx.membership.generation,
            commit_offset=None if entry is None else entry.commit_offset,
            deleted=isinstance(call, ResetDeletedOffsets),
            task_generation=change.task_generation,
        )
        ctx.emit(change.effect)

    def _had_tasks(self, change: Change) -> bool:
        """Return whether a connector of a deleted one's name has had tasks since its producers were
        fenced."""
        call = change.call
        deleted = isinstance(call, ResetDeletedOffsets)
        return deleted and change.task_generation != _generation(self._ctx.state, call.name)

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
        assert change.effect is not None
        if is_as_it_was(self._ctx.state, change.effect):
            self._finish(change, change.result)
        else:
            text = CREATED_MEANWHILE if change.effect.deleted else STARTED_MEANWHILE
            failure = Failure(ErrorKind.CONFLICT, text.format(change.call.name))
            self._finish(change, failure)

    def _finish(self, change: Change, result: Result) -> None:
        self._drop(change)
        self._ctx.note(Resolved(change.ticket, result))

    def _drop(self, change: Change) -> None:
        del self._open[change.ticket]
        self._leadership.release(change.ticket, change.call.name)

    # -- what is asked of the connector --

    def _refusal(self, call: ChangeCall) -> Failure | None:
        return change_refusal(self._ctx.state, call)

    def _exactly_once(self, call: ChangeCall) -> bool:
        if not self._ctx.settings.exactly_once:
            return False
        if isinstance(call, ResetDeletedOffsets):
            return call.kind is TaskKind.SOURCE
        entry = self._ctx.state.entry(call.name)
        if entry is None or entry.config is None:
            return False
        return self._ctx.settings.kind(entry.config) is TaskKind.SOURCE

    @property
    def pending(self) -> list[str]:
        return [f"offsets of {c.call.name}: {c.step.value}" for c in self._open.values()]


def is_as_it_was(state: ConfigState, effect: AlterConnectorOffsets) -> bool:
    """Return whether the connector has not got tasks since `effect` was decided. `state`: of the
    same reader as then."""
    entry = state.entry(effect.connector)
    if not effect.deleted:
        return entry is not None and entry.commit_offset == effect.commit_offset
    return entry is None and _generation(state, effect.connector) == effect.task_generation


def _generation(state: ConfigState, name: str) -> int | None:
    """Return the task generation of the connector, also after its deletion."""
    entry = state.entries.get(name)
    return None if entry is None else entry.task_generation


def _message(call: ChangeCall, *, handled: bool) -> str:
    if isinstance(call, ResetDeletedOffsets):
        return f"The offsets that connector {call.name} has left have been reset successfully"
    done = "altered" if isinstance(call, AlterOffsets) else "reset"
    if handled:
        return f"The offsets for this connector have been {done} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {done} successfully. "
        "However, if this connector manages offsets externally, they will need to be manually "
        f"{done} in the system that the connector uses."
    )
