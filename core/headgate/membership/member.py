"""The member machine: one worker's membership in the group of workers. Source: KIP-415, and the
incremental cooperative part of `WorkerCoordinator` and `DistributedHerder`.

    OUTSIDE ----Start----> JOINING --JoinedGroup--> SYNCING --SyncedGroup--> one of
        RELEASING     work was revoked: it is stopped, then the member joins again
        CATCHING_UP   the leader had read more of the config topic
        PAUSING       the leader had read less than another member (config mismatch), or sent
                      nothing that can be read
        STEADY        work may start
    STEADY and those three go to JOINING; any doubt about the membership leads to STOPPING, and
    from there to JOINING, PAUSING or OUTSIDE.

The safety of the whole rests on three rules:

- *Released means stopped.* A join reports as held all work that runs or is still stopping. After a
revocation or a loss of the membership, the member joins once its work is stopped. Both waits end
with the rebalance timeout at the latest.
- *Doubt stops everything.* The member stops all work if the coordinator is out of reach, does not
know it, or has not answered for the session timeout by this worker's clock. The clock is checked
before any input, so a worker that was frozen notices first.
- *Nothing starts on old knowledge.* After a sync, work starts only if this worker's offset equals
the offset that the leader computed for.

The protocol is that of the round: a member offers several, and each round may choose another. In
Java's oldest, `default`, an assignment names all work of a member, and every member stops all its
work before it joins (`RELEASING`, then `JOINING`). No member can know beforehand that a round will
be the first of that kind. So work that such a round leaves out is stopped before any work starts
(`RELEASING`, then as after any sync). Java leaves it running.

Differs from Java: a member goes on sending heartbeats while it joins, to know that it still is a
member; it repeats requests until they are answered. Before it joins under a new member id, it stops
its work and does not report it: others may have been assigned it, and both would lose it.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeAlias

from headgate.assignment.model import Work
from headgate.errors import IllegalTransitionError
from headgate.ids import TaskId
from headgate.membership import member_messages as mm
from headgate.membership.codec import CODECS, Assignment, AssignmentError
from headgate.membership.disagreement import Disagreement
from headgate.membership.joining import Joining, join_request
from headgate.membership.last_round import LastRound
from headgate.membership.leading import Leader, Works, lead
from headgate.membership.messages import (
    GroupError,
    Heartbeat,
    HeartbeatAnswered,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    SyncedGroup,
    SyncGroup,
)
from headgate.membership.protocols import policy_of
from headgate.membership.session import Session
from headgate.wire import WireError

_OF_A_MEMBER: Final = (None, GroupError.REBALANCE_IN_PROGRESS, GroupError.ILLEGAL_GENERATION)
"""Errors of a heartbeat that show that the sender still is a member."""

_AFTER_A_SYNC: Final = (
    mm.MemberState.SYNCING,
    mm.MemberState.RELEASING,
    mm.MemberState.CATCHING_UP,
    mm.MemberState.PAUSING,
    mm.MemberState.STEADY,
)
"""States after the end of a round, in which the next round may find work running."""

_Handler: TypeAlias = Callable[..., list[mm.MemberOutput]]


def _everywhere(kind: type[Any]) -> list[tuple[mm.MemberState, type[Any]]]:
    return [(state, kind) for state in mm.MemberState]


class Member:
    """One worker's membership. Deterministic: all its knowledge comes through `handle`."""

    def __init__(self, settings: mm.MemberSettings) -> None:
        self._settings = settings
        self._state = mm.MemberState.OUTSIDE
        self._reason = ""
        """Why it joins, pauses or stops everything."""
        self._then = mm.MemberState.JOINING
        """STOPPING, RELEASING: the state that follows."""
        self._until_ms = 0
        """RELEASING, STOPPING, PAUSING: when the member continues in any case."""
        self._member_id = ""
        self._sequence = 0
        """Sequence number of the last join. It never falls, so a late answer is recognised."""
        self._joined_generation = -1
        """Generation of the last `JoinedGroup`; heartbeats carry it."""
        self._joined_protocol = ""
        """Protocol that the coordinator chose for `_joined_generation`."""
        self._session = Session(settings.session_timeout_ms, settings.heartbeat_interval_ms)
        self._request: JoinGroup | SyncGroup | None = None
        self._first_sent_ms = 0
        self._sent_ms = 0
        """When `_request` was sent for the first and for the last time."""
        self._reported: Works = ((), ())
        """Work that the last join reported as held, in protocols that can report it."""
        self._last = LastRound()
        self._rebalances = 0
        self.disagreement = Disagreement()

    def handle(
        self, now_ms: int, input: mm.MemberInput, view: mm.WorkView
    ) -> list[mm.MemberOutput]:
        """Return what to do about `input`, to be carried out in order.

        Args:
            now_ms: Monotonic, never less than in the previous call.
            input: One of `MemberInput`; `Tick` no later than `next_deadline_ms`.
            view: What the herder knows now.

        Raises IllegalTransitionError for `Start` while the member is in the group.
        """
        outputs = self._check_session(now_ms)
        handler = self.TRANSITIONS.get((self._state, type(input)))
        if handler is None:
            raise IllegalTransitionError(
                f"{type(input).__name__} while {self._state}: expected once, while outside"
            )
        return outputs + handler(self, now_ms, input, view)

    # -- what it shows --

    @property
    def state(self) -> mm.MemberState:
        return self._state

    @property
    def next_deadline_ms(self) -> int | None:
        """Latest time for the next `Tick`; None if none is needed."""
        deadlines: list[int] = []
        if self._beats():
            deadlines.append(self._session.heartbeat_ms)
        if self._session.deadline_ms is not None:
            deadlines.append(self._session.deadline_ms)
        match self._state:
            case mm.MemberState.JOINING | mm.MemberState.SYNCING:
                deadlines.append(self._sent_ms + self._settings.heartbeat_interval_ms)
            case mm.MemberState.RELEASING | mm.MemberState.STOPPING | mm.MemberState.PAUSING:
                deadlines.append(self._until_ms)
            case mm.MemberState.STEADY if self._last.next_join_ms is not None:
                deadlines.append(self._last.next_join_ms)
            case _:
                pass
        return min(deadlines, default=None)

    @property
    def generation(self) -> int:
        """Generation of the last successful sync; -1 before any, or after the membership was given
        up."""
        return self._last.generation

    @property
    def protocol(self) -> str:
        """Protocol of the last round completed; empty before any."""
        return self._last.protocol

    @property
    def member_id(self) -> str:
        """Member id; empty until the coordinator gave one, and after it disowned the member."""
        return self._member_id

    @property
    def leader(self) -> str:
        """Member id of the leader of `generation`; empty if there is none."""
        return self._last.leader

    @property
    def leader_url(self) -> str:
        return self._last.leader_url

    @property
    def is_leader(self) -> bool:
        return bool(self._member_id) and self.leader == self._member_id

    @property
    def connectors(self) -> tuple[str, ...]:
        """Assigned connectors."""
        return self._last.connectors

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        return self._last.tasks

    @property
    def rebalances(self) -> int:
        """Number of rounds completed since construction."""
        return self._rebalances

    @property
    def pending(self) -> tuple[str, ...]:
        """Texts for what is under way; empty when settled. A running delay counts as pending."""
        match self._state:
            case mm.MemberState.OUTSIDE:
                return (f"outside group {self._settings.group}",)
            case mm.MemberState.JOINING:
                return (f"joining group {self._settings.group}: {self._reason}",)
            case mm.MemberState.SYNCING:
                return (f"waiting for the assignment of generation {self._joined_generation}",)
            case mm.MemberState.RELEASING:
                if self._last.eager and self._then is mm.MemberState.JOINING:
                    return (f"stopping everything before joining: {self._reason}",)
                return (f"stopping what generation {self.generation} revoked",)
            case mm.MemberState.CATCHING_UP:
                return (f"reading the config topic up to {self._last.offset_text}",)
            case mm.MemberState.PAUSING:
                return (f"pausing before joining: {self._reason}",)
            case mm.MemberState.STOPPING:
                return (f"stopping everything: {self._reason}",)
            case mm.MemberState.STEADY:
                return self._last.pending(leads=self.is_leader)

    def releasing(self, connector: str) -> bool:
        """Return whether tasks of `connector` that are no longer configured may still be alive.
        True if this member is not the leader, since only the leader knows."""
        return not self.is_leader or self._last.releasing(connector)

    def owner_url(self, work: Work) -> str | None:
        """Return the url of the member that owns `work`; None if this member is not the leader."""
        return self._last.owner_url(work) if self.is_leader else None

    def led(self) -> LastRound | None:
        """Return the round as this leader computed it; None if this is not the leader."""
        return self._last if self.is_leader else None

    # -- joining --

    def _start(self, now_ms: int, _: mm.Start, view: mm.WorkView) -> list[mm.MemberOutput]:
        return self._join(now_ms, view, "starting")

    def _join(self, now_ms: int, view: mm.WorkView, reason: str) -> list[mm.MemberOutput]:
        self._reason = reason
        held = self._last.held(view)
        if self._last.eager and any(held) and self._state in _AFTER_A_SYNC:
            return self._release(now_ms, held, mm.MemberState.JOINING)
        return self._ask_to_join(now_ms, view)

    def _ask_to_join(self, now_ms: int, view: mm.WorkView) -> list[mm.MemberOutput]:
        held = self._last.held(view)
        self._state = mm.MemberState.JOINING
        self._sequence += 1
        self._reported = held
        left_ms, last = self._last.delay_left_ms(now_ms), self._last.assignment
        joining = Joining(self._member_id, *held, last, left_ms, self.generation)
        return self._send(now_ms, join_request(self._settings, joining, view, self._sequence))

    def _send(self, now_ms: int, request: JoinGroup | SyncGroup) -> list[mm.MemberOutput]:
        self._request = request
        self._first_sent_ms = self._sent_ms = now_ms
        return [request]

    def _joined(self, now_ms: int, answer: JoinedGroup, view: mm.WorkView) -> list[mm.MemberOutput]:
        if answer.sequence not in (0, self._sequence):
            return []  # answers an earlier join, with another report
        match answer.error:
            case None:
                return self._sync(now_ms, answer, view)
            case GroupError.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                return self._join(now_ms, view, self._reason)
            case GroupError.UNKNOWN_MEMBER_ID:
                return self._disowned(now_ms)
            case error:
                # The error may pass: the join is repeated.
                self._reason = f"refused with {error}"
                return []

    def _sync(self, now_ms: int, answer: JoinedGroup, view: mm.WorkView) -> list[mm.MemberOutput]:
        self._state = mm.MemberState.SYNCING
        self._member_id = answer.member_id
        self._joined_generation = answer.generation
        self._joined_protocol = answer.protocol
        # A member without work risks nothing if its session counts from the last repetition.
        self._session.heard(self._first_sent_ms if self._session.open else self._sent_ms)
        self._session.beat(now_ms)
        assignments: Mapping[str, bytes] = {}
        if answer.leader == answer.member_id:
            policy = policy_of(answer.protocol, self._settings.policy)
            leader = Leader(
                url=self._settings.url,
                delay_left_ms=self._last.delay_left_ms(now_ms),
                last_completed_generation=self._last.completed,
                delay_ms_max=self._settings.delay_ms_max,
                memory=self._last.memory(policy),
                policy=self._settings.policy,
                config_topic=self._settings.config_topic,
                grpc=self._settings.grpc,
            )
            led = lead(now_ms, answer, leader, view)
            self._last.led(policy, led)
            self.disagreement.led(led, self._settings.config_topic)
            assignments = led.assignments
        group, generation = self._settings.group, self._joined_generation
        return self._send(now_ms, SyncGroup(group, self._member_id, generation, assignments))

    # -- the assignment --

    def _synced(self, now_ms: int, answer: SyncedGroup, view: mm.WorkView) -> list[mm.MemberOutput]:
        if (answer.member_id, answer.generation) != (self._member_id, self._joined_generation):
            return []
        match answer.error:
            case None:
                pass
            case GroupError.UNKNOWN_MEMBER_ID:
                return self._disowned(now_ms)
            case GroupError.REBALANCE_IN_PROGRESS | GroupError.ILLEGAL_GENERATION as error:
                self._session.heard(self._first_sent_ms)
                return self._join(now_ms, view, f"sync refused with {error}")
            case _:
                return []  # it is repeated
        self._session.heard(self._first_sent_ms)
        try:
            assignment = CODECS[self._joined_protocol].decode_assignment(answer.assignment)
        except WireError as error:  # a leader may also have left this member out
            return self._pause(now_ms, f"the leader sent no assignment that can be read: {error}")
        self._take(now_ms, assignment)
        assigned = self._last.assigned(leads=self.is_leader)
        return [assigned, *self._act(now_ms, assignment, view)]

    def _take(self, now_ms: int, assignment: Assignment) -> None:
        """Store the round, which is valid."""
        self._request = None
        self._rebalances += 1
        self._last.take(
            now_ms, self._joined_generation, self._joined_protocol, assignment, self._reported
        )
        if not self.is_leader:
            self._last.another_leads()
            self.disagreement.another_leads()

    def _act(self, now_ms: int, assignment: Assignment, view: mm.WorkView) -> list[mm.MemberOutput]:
        own_topic = self._settings.config_topic
        if own_topic and assignment.config_topic not in ("", own_topic):
            self.disagreement.another_topic(assignment, own_topic, leads=self.is_leader)
            reason = "members of the group read another config topic"
            return self._stop_everything(now_ms, reason, mm.MemberState.PAUSING)
        self.disagreement.same_topic()
        if assignment.config_topic:
            return self._pause(now_ms, f"the leader {self.leader_url} has another topic: gives way")
        read = self._last.offset_read(view)
        if assignment.error is not AssignmentError.NONE:
            self.disagreement.goes_on(self._last, read)
            outputs = self._pause(now_ms, f"the leader had not read up to {self._last.offset_text}")
            return (
                [*outputs, mm.CatchUp(self._last.offset)] if read < self._last.offset else outputs
            )
        works = self._last.to_release(view)
        if not any(works):
            return self._compare(now_ms, view)
        if self._last.eager:
            return self._release(now_ms, works, mm.MemberState.STEADY)
        self._reason = "revoked work is stopped"
        outputs = self._release(now_ms, works, mm.MemberState.JOINING)
        return [*outputs, mm.StartAllowed()] if read == self._last.offset else outputs

    def _release(self, now_ms: int, works: Works, then: mm.MemberState) -> list[mm.MemberOutput]:
        """Release `works`. `then` is JOINING, or STEADY if assigned work starts afterwards."""
        self._state = mm.MemberState.RELEASING
        self._then = then
        self._until_ms = now_ms + self._release_ms()
        self._last.release(works)
        return [mm.Revoked(*works)]

    def _pause(self, now_ms: int, reason: str) -> list[mm.MemberOutput]:
        self._state = mm.MemberState.PAUSING
        self._request = None
        self._reason = reason
        self._until_ms = now_ms + self._settings.error_pause_ms
        return []

    def _compare(self, now_ms: int, view: mm.WorkView) -> list[mm.MemberOutput]:
        """Compare how far this worker has read with how far the leader had."""
        read, offset = self._last.offset_read(view), self._last.offset
        if read < offset:
            self._state = mm.MemberState.CATCHING_UP
            return [mm.CatchUp(offset)]
        self.disagreement.over()
        if read > offset:
            return self._join(
                now_ms, view, f"read up to {read}, assigned for {self._last.offset_text}"
            )
        self._state = mm.MemberState.STEADY
        return [mm.StartAllowed()]

    def _caught_up(
        self, now_ms: int, answer: mm.CaughtUp, view: mm.WorkView
    ) -> list[mm.MemberOutput]:
        read = self._last.offset_read(view)
        if answer.error is None and read >= self._last.offset:
            return self._compare(now_ms, view)
        if answer.error is None:
            self.disagreement.goes_on(self._last, read)
        return self._stop_everything(
            now_ms,
            f"could not read the config topic up to {self._last.offset_text}: "
            f"{answer.error or f'its end is at {read}'}",
            mm.MemberState.PAUSING,
        )

    def _released(
        self, now_ms: int, _: mm.WorkReleased | None, view: mm.WorkView
    ) -> list[mm.MemberOutput]:
        if self._then is mm.MemberState.STEADY:
            return self._compare(now_ms, view)
        return self._ask_to_join(now_ms, view)

    def _rejoin(
        self, now_ms: int, request: mm.RejoinRequested, view: mm.WorkView
    ) -> list[mm.MemberOutput]:
        return self._join(now_ms, view, request.reason)

    # -- doubt --

    def _check_session(self, now_ms: int) -> list[mm.MemberOutput]:
        """Check the session before any input is believed: a worker that was suspended may find
        answers that were right when they were sent."""
        silent_ms = self._session.silent_ms(now_ms)
        if silent_ms < self._settings.session_timeout_ms:
            return []
        return self._stop_everything(
            now_ms,
            f"nothing heard from the coordinator for {silent_ms} ms, "
            f"the session timeout is {self._settings.session_timeout_ms} ms",
            mm.MemberState.JOINING,
        )

    def _lost(
        self, now_ms: int, lost: mm.CoordinatorLost, view: mm.WorkView
    ) -> list[mm.MemberOutput]:
        return self._stop_everything(
            now_ms, f"coordinator lost: {lost.reason}", mm.MemberState.JOINING
        )

    def _disowned(self, now_ms: int) -> list[mm.MemberOutput]:
        generation = self._joined_generation
        self._forget_id()
        return self._stop_everything(
            now_ms,
            f"the coordinator no longer knows this member (of generation {generation})",
            mm.MemberState.JOINING,
        )

    def _stop_everything(
        self, now_ms: int, reason: str, then: mm.MemberState
    ) -> list[mm.MemberOutput]:
        """Give the assignment up. The member id is kept unless the coordinator disowned it: if it
        is still valid, joining with it spares the group the delay."""
        self._state = mm.MemberState.STOPPING
        self._then = then
        self._reason = reason
        self._until_ms = now_ms + self._release_ms()
        self._session.end()
        self._request = None
        self._last.give_up()
        self.disagreement.another_leads()
        return [mm.StopEverything(reason)]

    def _stopped(
        self, now_ms: int, _: mm.WorkReleased | None, view: mm.WorkView
    ) -> list[mm.MemberOutput]:
        if self._then is mm.MemberState.JOINING:
            return self._join(now_ms, view, self._reason)
        self._state = self._then
        settings = self._settings
        away = self.disagreement.elsewhere
        self._until_ms = now_ms + (
            settings.other_topic_pause_ms if away else settings.error_pause_ms
        )
        if not self._member_id:
            return []
        left = LeaveGroup(self._settings.group, self._member_id)
        self._forget_id()
        return [left]

    def _forget_id(self) -> None:
        self._member_id = ""
        self._joined_generation = -1

    def _leave(self, now_ms: int, _: mm.Leave, view: mm.WorkView) -> list[mm.MemberOutput]:
        if self._state is mm.MemberState.STOPPING:
            self._then = mm.MemberState.OUTSIDE
            return []
        held = bool(view.held_connectors or view.held_tasks)
        outputs = self._stop_everything(now_ms, "leaving the group", mm.MemberState.OUTSIDE)
        return outputs if held else self._stopped(now_ms, None, view)

    # -- time and heartbeats --

    def _tick(self, now_ms: int, _: mm.Tick, view: mm.WorkView) -> list[mm.MemberOutput]:
        outputs: list[mm.MemberOutput] = []
        if self._beats() and now_ms >= self._session.heartbeat_ms:
            self._session.beat(now_ms)
            outputs.append(
                Heartbeat(
                    self._settings.group, self._member_id, self._joined_generation, sent_ms=now_ms
                )
            )
        return outputs + self._time_is_over(now_ms, view)

    def _time_is_over(self, now_ms: int, view: mm.WorkView) -> list[mm.MemberOutput]:
        match self._state:
            case mm.MemberState.JOINING | mm.MemberState.SYNCING:
                if now_ms >= self._sent_ms + self._settings.heartbeat_interval_ms:
                    return self._repeat(now_ms)
            case mm.MemberState.RELEASING if now_ms >= self._until_ms:
                self._reason = "work takes too long to stop"
                return self._released(now_ms, None, view)
            case mm.MemberState.STOPPING if now_ms >= self._until_ms:
                return self._stopped(now_ms, None, view)
            case mm.MemberState.PAUSING if now_ms >= self._until_ms:
                return self._join(now_ms, view, self._reason)
            case mm.MemberState.STEADY:
                if self._last.next_join_ms is not None and now_ms >= self._last.next_join_ms:
                    return self._join(now_ms, view, self._last.why_again(now_ms))
            case _:
                pass
        return []

    def _repeat(self, now_ms: int) -> list[mm.MemberOutput]:
        self._sent_ms = now_ms
        return [self._request] if self._request is not None else []

    def _heartbeat_answered(
        self, now_ms: int, answer: HeartbeatAnswered, view: mm.WorkView
    ) -> list[mm.MemberOutput]:
        if (answer.member_id, answer.generation) != (self._member_id, self._joined_generation):
            return []
        if answer.error is GroupError.UNKNOWN_MEMBER_ID:
            if self._state is mm.MemberState.STOPPING:
                self._forget_id()
                return []
            return self._disowned(now_ms)
        if answer.error not in _OF_A_MEMBER:
            return []
        if self._state is not mm.MemberState.STOPPING:
            self._session.heard(answer.sent_ms)
        if answer.error is None:
            return []
        match self._state:
            case mm.MemberState.JOINING if answer.error is GroupError.ILLEGAL_GENERATION:
                # The round is over, and its answer was lost.
                return self._repeat(now_ms)
            case mm.MemberState.RELEASING if self._then is mm.MemberState.JOINING:
                return []
            case state if state in _AFTER_A_SYNC:
                return self._join(now_ms, view, f"heartbeat answered with {answer.error}")
            case _:
                return []  # it joins anyhow, or once its work is stopped

    def _ignore(
        self, now_ms: int, input: mm.MemberInput, view: mm.WorkView
    ) -> list[mm.MemberOutput]:
        """Ignore an input that is out of date, or that the present state covers already."""
        return []

    # -- helpers --

    def _beats(self) -> bool:
        return bool(self._member_id) and self._joined_generation >= 0

    def _release_ms(self) -> int:
        """Return a time a little shorter than the coordinator waits for this member's join."""
        settings = self._settings
        soon_ms = settings.rebalance_timeout_ms - settings.heartbeat_interval_ms
        return max(soon_ms, settings.rebalance_timeout_ms // 2)

    TRANSITIONS: ClassVar[Mapping[tuple[mm.MemberState, type[Any]], _Handler]] = {
        (mm.MemberState.OUTSIDE, mm.Start): _start,
        **dict.fromkeys(_everywhere(mm.Tick), _tick),
        **dict.fromkeys(_everywhere(JoinedGroup), _ignore),
        (mm.MemberState.JOINING, JoinedGroup): _joined,
        **dict.fromkeys(_everywhere(SyncedGroup), _ignore),
        (mm.MemberState.SYNCING, SyncedGroup): _synced,
        **dict.fromkeys(_everywhere(HeartbeatAnswered), _heartbeat_answered),
        (mm.MemberState.OUTSIDE, HeartbeatAnswered): _ignore,
        # In any other state a round is coming, or its offset is about to be compared.
        **dict.fromkeys(_everywhere(mm.RejoinRequested), _ignore),
        (mm.MemberState.STEADY, mm.RejoinRequested): _rejoin,
        **dict.fromkeys(_everywhere(mm.CoordinatorLost), _lost),
        (mm.MemberState.OUTSIDE, mm.CoordinatorLost): _ignore,
        (mm.MemberState.STOPPING, mm.CoordinatorLost): _ignore,
        **dict.fromkeys(_everywhere(mm.WorkReleased), _ignore),
        (mm.MemberState.RELEASING, mm.WorkReleased): _released,
        (mm.MemberState.STOPPING, mm.WorkReleased): _stopped,
        **dict.fromkeys(_everywhere(mm.CaughtUp), _ignore),
        (mm.MemberState.CATCHING_UP, mm.CaughtUp): _caught_up,
        **dict.fromkeys(_everywhere(mm.Leave), _leave),
        (mm.MemberState.OUTSIDE, mm.Leave): _ignore,
    }
    """Handler by state and kind of input; a missing pair is illegal."""
