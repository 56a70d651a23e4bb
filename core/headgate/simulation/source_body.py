"""The body of a source task: the real machine, a made-up source, the log's producer.

The source has `PARTITIONS` source partitions; task i of N reads those whose number modulo N is i.
Records of a partition are numbered from 0, so a reader of the output can tell what is lost, doubled
or out of order. Their key is the source partition, so that a topic keeps their order.
"""

from collections.abc import Callable

from headgate.ports import Producer, ProducerRecord
from headgate.simulation.body import Body
from headgate.simulation.restart_checks import EXCLUDED, INCLUDED
from headgate.simulation.world import World
from headgate.task import steps
from headgate.task.messages import BodyReport, TaskOutcome, TaskSpec
from headgate.task.source import SourceMachine, SourceSettings
from headgate.topics.offsets import decode_key, decode_value, encode_key, encode_value

PARTITIONS = 4
RECORDS = 320
"""Records of each source partition; a source that has given them all is idle."""
RECORD_INTERVAL_MS = 60
"""Record n is there to be polled from n times this on: so records flow while there are faults."""
BATCH = 5
POLLED_AHEAD = 0.5
"""Share of the commits during which the source is polled before their outcome is known."""


class SourceBody(Body):
    def __init__(self, world: World, spec: TaskSpec, report: Callable[[BodyReport], None]) -> None:
        super().__init__(world, spec, report, SourceMachine(SourceSettings.from_spec(spec)))
        self._producer: Producer | None = None
        self._next: dict[int, int] = {}
        self._batch: list[tuple[int, int]] = []
        self._open: list[tuple[int, int]] = []
        self._ahead: steps.Polled | None = None
        """What was polled during the last commit."""

    def _delay_ms(self, effect: steps.BodyEffect) -> int:
        return effect.delay_ms if isinstance(effect, steps.Poll) else 0

    def _act(self, effect: steps.BodyEffect) -> steps.BodyInput | None:
        match effect:
            case steps.Connect():
                return None
            case steps.InitProducer():
                return self._init()
            case steps.ReadOffsets():
                return self._read_offsets()
            case steps.CallStart():
                return steps.Started()
            case steps.Poll():
                if self._fails():
                    return steps.Failed(TaskOutcome.FAILED, error_of(self._world))
                return self._poll()
            case steps.SendRecords(first, end):
                self._send(self._batch[first:end])
                return None
            case steps.CommitTransaction():
                return self._commit()
            case steps.AbortTransaction():
                return steps.Aborted()
            case steps.Close():
                return steps.Closed()
            case _:
                raise AssertionError(f"a source does not {effect!r}")

    def _init(self) -> steps.BodyInput:
        spec = self.spec
        membership = (spec.group, spec.member_id, spec.generation)
        log = self._world.transport.record_log
        self._producer = log.producer(spec.run, spec.transactional_id, membership)
        self._producer.init()
        self._world.checks.producer_initialised(spec)
        return steps.ProducerReady()

    def _read_offsets(self) -> steps.BodyInput:
        count = int(self.spec.task_config["count"])
        index = int(self.spec.task_config["index"])
        self._next = {p: 0 for p in range(PARTITIONS) if p % count == index}
        records, _ = self._world.transport.offset_log.read(0, 1_000_000)
        for record in records:
            known = decode_key(record.key or b"")
            offset = decode_value(record.value)
            if known is None or offset is None or known.connector != self.spec.task.connector:
                continue
            partition = int((known.partition or {})["p"])
            if partition in self._next:
                self._next[partition] = int(offset["n"]) + 1
        return steps.OffsetsRead()

    def _fails(self) -> bool:
        probability = self._world.options.failing_polls
        return bool(probability) and self._world.faulty and self._schedule.likely(probability)

    def _poll(self) -> steps.Polled:
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead
        self._batch = []
        for partition in sorted(self._next):
            first = self._next[partition]
            there = min(RECORDS, self._schedule.now_ms // RECORD_INTERVAL_MS)
            count = max(0, min(self._schedule.chance.randint(0, BATCH), there - first))
            self._batch += [(partition, first + i) for i in range(count)]
            self._next[partition] = first + count
        return steps.Polled(records=len(self._batch))

    def _send(self, records: list[tuple[int, int]]) -> None:
        assert self._producer is not None
        connector = self.spec.task.connector
        self._producer.send(
            [
                ProducerRecord(connector, None, str(p).encode(), f"{connector}/{p}/{n}".encode())
                for p, n in records
            ]
        )
        self._open += records

    def _commit(self) -> steps.BodyInput:
        if self._open:
            assert self._producer is not None
            reached = dict(self._open)
            connector = self.spec.task.connector
            if self._schedule.chance.random() < POLLED_AHEAD:
                polled = self._poll()
                self._ahead = polled if polled.records else None
            self._producer.commit(
                [
                    (encode_key(connector, {"p": p}), encode_value({"n": n}))
                    for p, n in sorted(reached.items())
                ]
            )
            self._world.checks.data_committed(self.spec, self._open)
            self._open = []
        return steps.Committed(ahead=self._ahead is not None)


def error_of(world: World) -> str:
    """What a task or connector fails with: sometimes an error that the policy does not name."""
    other = world.options.small_budgets and world.schedule.likely(0.15)
    return EXCLUDED if other else INCLUDED
