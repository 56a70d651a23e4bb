"""The body of a sink task: the real machine, a member of its consumer group, a made-up system.

What the system holds is what `Checks` was told at `put`. Partitions come and go within a poll, as
in a real body; a poll itself takes no time here, the waiting lies before it.
"""

from collections.abc import Callable

from headgate.connector.sink_names import sink_group, sink_subscription
from headgate.ports import ConsumerRecord, RebalancedError, TopicPartition
from headgate.simulation.body import Body
from headgate.simulation.memory_clients import MemoryConsumer
from headgate.simulation.world import World
from headgate.task import steps
from headgate.task.messages import BodyReport, TaskSpec
from headgate.task.sink import SinkMachine, SinkSettings

BATCH = 50
REFUSED_PROBABILITY = 0.03
"""Probability that a `put` is refused while there are faults: the system is away for a moment."""


class SinkBody(Body):
    def __init__(self, world: World, spec: TaskSpec, report: Callable[[BodyReport], None]) -> None:
        super().__init__(world, spec, report, SinkMachine(SinkSettings.from_spec(spec)))
        self._group = sink_group(spec.task.connector, spec.connector_config)
        self._consumer: MemoryConsumer | None = None
        self._batch: list[ConsumerRecord] = []
        self._delivered: dict[TopicPartition, tuple[int, int]] = {}
        """Next offset after what `put` took, and how many records are not committed yet."""

    def _delay_ms(self, effect: steps.BodyEffect) -> int:
        match effect:
            case steps.Consume(timeout_ms) | steps.ServeGroup(timeout_ms):
                return timeout_ms
            case steps.Put(delay_ms):
                return delay_ms
            case _:
                return 0

    def _act(self, effect: steps.BodyEffect) -> steps.BodyInput | None:
        match effect:
            case steps.CallStart():
                return self._start()
            case steps.Consume(_, paused):
                return self._consume(paused)
            case steps.Put(delay_ms):
                return self._put(delay_ms)
            case steps.ServeGroup():
                self._member.poll(0, 0)
                return steps.GroupServed()
            case steps.CommitOffsets():
                return self._commit(set(self._delivered))
            case steps.OpenPartitions():
                return None
            case steps.CommitPartitions(partitions):
                # Refused: they are another's in a moment, who reads again from the last commit.
                self._commit(set(partitions))
                return None
            case steps.ClosePartitions(partitions):
                self._close_partitions(set(partitions))
                return None
            case steps.Close():
                return self._close()
            case _:
                raise AssertionError(f"a sink does not {effect!r}")

    def _start(self) -> steps.BodyInput:
        topics = sink_subscription(self.spec.connector_config)
        log = self._world.transport.record_log
        client_id = f"connector-consumer-{self.spec.task}"
        self._consumer = log.consumer(self._group, topics, client_id)
        self._consumer.on_rebalance(
            lambda given: self._interrupt(steps.PartitionsAssigned(tuple(sorted(given)))),
            lambda given: self._interrupt(steps.PartitionsRevoked(tuple(sorted(given)))),
        )
        return steps.Started()

    @property
    def _member(self) -> MemoryConsumer:
        assert self._consumer is not None
        return self._consumer

    def _interrupt(self, given: steps.PartitionsAssigned | steps.PartitionsRevoked) -> None:
        """Within a poll, at the same instant: what the machine wants done has no outcome."""
        for effect in self._machine.handle(self._schedule.now_ms, given):
            self._act(effect)

    def _consume(self, paused: bool) -> steps.BodyInput:
        self._batch = []
        held = sorted(self._member.assignment())
        if paused:
            self._member.pause(held)
        else:
            self._member.resume(held)
        self._batch = list(self._member.poll(BATCH, 0))
        return steps.Consumed(records=len(self._batch))

    def _put(self, delay_ms: int) -> steps.BodyInput:
        if delay_ms:
            self._member.poll(0, 0)  # to stay a member; partitions may go, and records with them
        if self._world.faulty and self._schedule.likely(REFUSED_PROBABILITY):
            return steps.PutRetriable("the system is away")
        self._world.checks.sink_put(self._group, self._batch)
        for record in self._batch:
            place = (record.topic, record.partition)
            _, count = self._delivered.get(place, (0, 0))
            self._delivered[place] = (record.offset + 1, count + 1)
        self._batch = []
        return steps.Delivered()

    def _commit(self, partitions: set[TopicPartition]) -> steps.BodyInput:
        due = {p: end for p, (end, count) in self._delivered.items() if p in partitions and count}
        if not due:
            return steps.OffsetsCommitted(0, pending=False)
        try:
            self._member.commit(due)
        except RebalancedError as error:
            return steps.OffsetsNotCommitted(str(error), again=True)
        self._world.checks.sink_committed(self.spec, self._member.membership, due)
        covered = sum(self._delivered[place][1] for place in due)
        self._delivered.update((place, (end, 0)) for place, end in due.items())
        return steps.OffsetsCommitted(covered, pending=False)

    def _close_partitions(self, gone: set[TopicPartition]) -> None:
        for place in sorted(gone):
            self._delivered.pop(place, None)
        self._batch = [r for r in self._batch if (r.topic, r.partition) not in gone]

    def _close(self) -> steps.BodyInput:
        if self._consumer is not None:
            # Leaving revokes what it holds: that was settled before, and the machine has ended.
            self._consumer.on_rebalance(lambda _given: None, lambda _given: None)
            self._consumer.close()
        return steps.Closed()
