"""What must always hold, as named checks on a simulated cluster.

Numbers are those of docs/know/architecture.md.

Safety is checked as things happen and after every step; liveness when the faults have stopped.
"""

from collections.abc import Mapping, Sequence
from typing import NoReturn

from headgate.errors import CoreError
from headgate.herder.messages import AlterConnectorOffsets, Call, Effect, StartConnector, StartTask
from headgate.host.ports import ConfigRecords
from headgate.ids import TargetState, TaskId
from headgate.ports import ConsumerRecord, TopicPartition
from headgate.simulation.memory_clients import Membership
from headgate.simulation.restart_checks import RestartChecks
from headgate.simulation.world import Worker, World
from headgate.task.messages import TaskSpec
from headgate.topics.config_events import (
    ConfigEvent,
    ConnectorConfigured,
    ConnectorRemoved,
    TargetStateChanged,
    TaskCountRecorded,
    TasksCommitted,
)
from headgate.topics.config_records import decode
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from headgate.topics.status import ConnectorStatusReported, TaskStatusReported, decode_status


class InvariantBroken(CoreError):
    """A check failed. The message begins with the invariant's name."""


class Checks:
    """Told of what happens; raises `InvariantBroken` at the step that breaks something."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.state = ConfigState()
        """The log as an observer without any work sees it."""
        self.events: list[ConfigEvent] = []
        self._initialised: dict[str, int] = {}
        """Run -> config offset of the log's end when its producer was initialised."""
        self.restarts = RestartChecks(lambda: world.schedule.now_ms, self._told, self.broken)
        self._claimed = -1
        self._next_record: dict[tuple[str, int], int] = {}
        self.offsets_changed = 0
        self.left_reset = 0
        self.puts = 0
        self._put: dict[tuple[str, TopicPartition], set[int]] = {}
        """What the systems behind the sinks hold: offsets by consumer group and partition."""
        self._covered: dict[tuple[str, TopicPartition], int] = {}
        """Offset that the group has committed."""

    def broken(self, invariant: str, text: str) -> NoReturn:
        now = self._world.schedule.now_ms
        raise InvariantBroken(f"{invariant}: {text} (at {now} ms of seed {self._world.seed})")

    # -- as things happen --

    def config_appended(self, worker: Worker, records: ConfigRecords, *, privileged: bool) -> None:
        if privileged and self._writers.get(worker.url) != self._claimed:
            self.broken(
                "4 one log writer",
                f"{worker.name} wrote {records[0][0]} after a later leader's claim",
            )
        self.read_log()
        for key, _ in records:
            name = key.partition("-")[2]
            for connector in (name, name.removeprefix("state-")):
                self._stopped_is_empty(connector)

    @property
    def _writers(self) -> dict[str, int]:
        return self._world.claims

    def leadership_claimed(self, worker: Worker, generation: int) -> None:
        self._claimed = generation
        self._world.claims[worker.url] = generation

    def _stopped_is_empty(self, connector: str) -> None:
        state = self.state
        if state.entry(connector) is None:
            return
        if state.target_state(connector) is TargetState.STOPPED and state.tasks(connector):
            self.broken("8 stopped is empty", f"{connector} is STOPPED with tasks")

    def offsets_written(self, worker: Worker, effect: AlterConnectorOffsets) -> None:
        """While the leader writes a connector's offsets nobody has tasks of it; while it writes
        those that a deleted one has left, there is none of that name.

        One whose claim was overtaken may still be at it: the producer that it writes with is shut
        out by the first task's, and it does not say that all went well.
        """
        state = self.read_log()
        if self._writers.get(worker.url) != self._claimed:
            return
        connector = effect.connector
        self.offsets_changed += 1
        self.left_reset += effect.deleted
        if effect.deleted and state.entry(connector) is not None:
            self.broken("8 stopped is empty", f"what {connector} has left changes, it is there")
        if state.tasks(connector):
            self.broken("8 stopped is empty", f"offsets of {connector} change, it has tasks")
        for other in self._world.workers.values():
            if other.dead or not self._world.is_member(other):
                continue
            for running in other.runner.unreleased():
                if running.task.connector == connector:
                    self.broken(
                        "8 stopped is empty",
                        f"offsets of {connector} change, {other.name} has {running.run}",
                    )

    def task_started(self, worker: Worker, spec: TaskSpec) -> None:
        """Work is added for a worker only when every former owner has released it or is out.

        A worker that froze with the start decided, and wakes up out of the group, may still make
        it: that run is a zombie from its birth, and checks 2 and 3 are about those.
        """
        if not self._world.is_member(worker):
            return
        for other in self._world.workers.values():
            if other.dead or not self._world.is_member(other):
                continue
            for running in other.runner.unreleased():
                if running.task == spec.task:
                    self.broken(
                        "1 one owner",
                        f"{worker.name} starts {spec.task}, {other.name} has {running.run}",
                    )

    def connector_started(self, worker: Worker, connector: str) -> None:
        """As `task_started`; the instance before it on the same worker counts as well."""
        if not self._world.is_member(worker):
            return
        for other in self._world.workers.values():
            if other.dead or not self._world.is_member(other):
                continue
            if connector in other.instances():
                self.broken("1 one owner", f"{worker.name} starts {connector}, {other.name} has it")

    def producer_initialised(self, spec: TaskSpec) -> None:
        self.read_log()
        self._initialised[spec.run] = self.state.offset

    def data_committed(self, spec: TaskSpec, records: Sequence[tuple[int, int]]) -> None:
        self.read_log()
        self._fenced_before_sending(spec)
        self._no_zombie_writes(spec)
        for partition, number in records:
            place = (spec.task.connector, partition)
            expected = self._next_record.get(place, 0)
            if number != expected:
                self.broken(
                    "6 nothing lost, nothing twice",
                    f"{spec.run} committed record {number} of {place}, expected {expected}",
                )
            self._next_record[place] = number + 1

    def _fenced_before_sending(self, spec: TaskSpec) -> None:
        """No commit of the connector lay between the one it was started for and its own init."""
        seen = self._initialised[spec.run]
        for event in reversed(self.events):
            if isinstance(event, TasksCommitted) and event.connector == spec.task.connector:
                if event.offset >= seen:
                    continue
                if event.offset != spec.commit_offset:
                    self.broken(
                        "2 fenced before sending",
                        f"{spec.run} of commit {spec.commit_offset} sends, though it could have "
                        f"read commit {event.offset}",
                    )
                return

    def _no_zombie_writes(self, spec: TaskSpec) -> None:
        """After a task count record nothing of an earlier task generation becomes visible.

        Except from one task to one task: nobody is shut out for that record (KIP-618), it is the
        new task's own producer that shuts out the old one when it is initialised.
        """
        counts: list[int] = []
        """Counts of the newest task count record, and of the one before the commit that it
        followed."""
        newest: TasksCommitted | None = None
        for event in reversed(self.events):
            if getattr(event, "connector", None) != spec.task.connector:
                continue
            if isinstance(event, TaskCountRecorded):
                counts.append(event.task_count)
                if newest is not None:
                    break
            elif isinstance(event, TasksCommitted) and counts and newest is None:
                newest = event
                if spec.commit_offset >= event.offset:
                    return
        if newest is None or counts == [1, 1]:
            return
        self.broken(
            "3 no zombie writes",
            f"{spec.run} of commit {spec.commit_offset} became visible after the producers before "
            f"commit {newest.offset} were counted out",
        )

    def sink_put(self, group: str, records: Sequence[ConsumerRecord]) -> None:
        self.puts += len(records)
        for record in records:
            place = (group, (record.topic, record.partition))
            self._put.setdefault(place, set()).add(record.offset)

    def sink_committed(
        self, spec: TaskSpec, membership: Membership, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Only a member of the current generation commits; and only what was put before (6)."""
        why_not = self._world.why_not_committing(membership)
        if why_not:
            self.broken(
                "6 offsets of the generation", f"{spec.run} committed {dict(offsets)}: {why_not}"
            )
        for partition, end in offsets.items():
            place = (membership[0], partition)
            start = self._covered.get(place, 0)
            if end < start:
                self.broken(
                    "6 offsets of the generation", f"{spec.run} set {place} back to {end}: {start}"
                )
            put = self._put.get(place, set())
            lost = [offset for offset in range(start, end) if offset not in put]
            if lost:
                self.broken(
                    "6 at least once", f"{spec.run} committed {end} of {place} without {lost}"
                )
            self._covered[place] = end

    def answered(self, call_id: str, before: bool) -> None:
        if before:
            self.broken("12 every call is answered, once", f"{call_id} was answered twice")

    def decided(self, worker: Worker, effects: Sequence[Effect]) -> None:
        """After every decision: the worker's state is the log's, folded in whatever batches."""
        if self._world.options.small_budgets:
            self._restarts_decided(worker, effects)
        state = worker.herder.state
        if state.offset == self.state.offset and not _same(state, self.state):
            self.broken("7 the log decides", f"{worker.name} differs from another reader")

    def _restarts_decided(self, worker: Worker, effects: Sequence[Effect]) -> None:
        self.restarts.looked_at(worker)
        if not self._world.is_member(worker):
            return  # what it knows may be old
        for effect in effects:
            if isinstance(effect, StartTask):
                self.restarts.started(worker.url, effect.spec)
            elif isinstance(effect, StartConnector):
                self.restarts.connector_started(worker.url, effect)
            else:
                self.restarts.decided(worker.url, (effect,))

    def _told(self, work: TaskId | str) -> int:
        """Restarts in a row by the last status in the log, not as a worker has read it."""
        records, _ = self._world.transport.status_log.read(0)
        for record in records:
            event = decode_status(record.key or b"", record.value)
            if isinstance(event, TaskStatusReported) and event.task == work:
                return event.status.restarts
            if isinstance(event, ConnectorStatusReported) and event.connector == work:
                return event.status.restarts
        return 0

    def user_asked(self, call: Call) -> None:
        self.restarts.user_asked(call)

    def read_log(self) -> ConfigState:
        """The state of the log as it is now."""
        records, _ = self._world.transport.config_log.read(len(self.events), 1_000_000)
        events = [decode(r.offset, r.key, r.value) for r in records]
        self.events += events
        self.state = fold(self.state, events)
        return self.state

    def intent_kept(self, connector: str, target: TargetState, since: int) -> None:
        """An acknowledged target state is in the log, or was in force when it was asked for (9)."""
        self.read_log()
        for event in self.events[since:]:
            if not isinstance(event, TargetStateChanged):
                continue
            if (event.connector, event.target_state) == (connector, target):
                return
        before = fold(ConfigState(), self.events[:since])
        if before.target_state(connector) is not target:
            self.broken("9 persistent intent", f"{connector}: {target} acknowledged, not logged")

    def etag_held(self, connector: str, etag: int, begin: int, since: int) -> None:
        """A change with an etag was made on the config that had it; nor was a target state passed
        over that was in the log before it was asked for. `begin`: config offset before the
        change."""
        self.read_log()
        before = fold(ConfigState(), self.events[:since])
        for event in self.events:
            if getattr(event, "connector", None) != connector or not etag <= event.offset < begin:
                continue
            if isinstance(event, ConnectorConfigured) and event.changed is not None:
                continue
            missed = isinstance(event, TargetStateChanged) and event.offset < before.offset
            if missed or isinstance(event, ConnectorConfigured | ConnectorRemoved):
                self.broken("9 etags hold", f"{connector} with etag {etag}, at {begin}: {event}")

    def records(self) -> int:
        return sum(self._next_record.values())

    # -- at the end --

    def delivered(self, connector: str, partition: int) -> int:
        return self._next_record.get((connector, partition), 0)

    def output_is_what_was_committed(self) -> None:
        """What a committed reader sees: each record once, in order per source partition (5, 6)."""
        log = self._world.transport.record_log
        for connector in sorted({name for name, _ in self._next_record}):
            seen: dict[int, int] = {}
            for (topic, part), end in sorted(log.end_offsets([connector]).items()):
                for record in log.read(topic, part, 0, end, end):
                    _, p, n = (record.value or b"").decode().split("/")
                    if int(n) != seen.get(int(p), 0):
                        self.broken("5 atomic progress", f"record {n} of {connector}/{p}")
                    seen[int(p)] = int(n) + 1
            for partition, count in sorted(seen.items()):
                if count != self.delivered(connector, partition):
                    self.broken("5 atomic progress", f"{count} of {connector}/{partition}")


def _same(a: ConfigState, b: ConfigState) -> bool:
    if a is b:
        return True
    for name, entry in a.entries.items():
        if b.entries.get(name) != entry:
            return False
    return len(a.entries) == len(b.entries) and a.assignment_offset == b.assignment_offset
