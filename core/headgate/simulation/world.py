"""What the parts of a simulated cluster know of each other.

`headgate.simulation.cluster` puts the parts together. Each part takes a `World` and sees the
others through the protocols here, so no part imports the cluster, or another part that is above it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from headgate.herder.herder import Herder
from headgate.herder.messages import (
    AlterConnectorOffsets,
    Call,
    Command,
    Effect,
    Result,
    TaskReported,
)
from headgate.host.ports import ConfigRecords
from headgate.ids import TargetState
from headgate.ports import ConsumerRecord, TopicPartition
from headgate.simulation.memory_clients import Membership
from headgate.simulation.memory_transport import MemoryTransport
from headgate.simulation.schedule import Schedule
from headgate.task.messages import BodyReport, TaskCommand, TaskSpec
from headgate.task.steps import BodyEffect
from headgate.topics.config_events import ConfigEvent
from headgate.topics.config_state import ConfigState

SLOW_MS = 1_500


@dataclass(frozen=True, slots=True)
class Options:
    seed: int
    workers: int = 3
    faults_ms: int = 20_000
    """How long faults and users go on."""
    settle_ms: int = 120_000
    """Within which everything must have settled after that."""
    lost_messages: float = 0.01
    """Probability that a message or an answer goes astray while there are faults."""
    session_timeout_ms: int = 3_000
    frozen_committers: float = 0.0
    """Probability that a sink task freezes past its consumer session between deciding to commit
    offsets and doing so."""
    frozen_writers: float = 0.0
    """Probability that a leader freezes past its session between deciding a write and making it.
    The claim on the log is for that moment, and other faults seldom meet it."""
    slow_work: float = 0.0
    """Probability that a piece of work takes up to `SLOW_MS` while there are faults, as one thread
    of a worker may hang at a broker while all others go on."""
    failing_polls: float = 0.0
    """Probability that a source's poll fails its task while there are faults. Then the restart
    policy is on, and must bring every task back."""
    failing_connectors: float = 0.0
    """Probability that `start()` of a connector fails, that it fails later, and that it gives no
    task configs, each, while there are faults. Then the restart policy is on, as for tasks."""
    small_budgets: bool = False
    """With `failing_polls` or `failing_connectors`: connectors have a small budget of restarts,
    which is used up, and some errors are none that the policy names. The restart policy is checked
    step by step."""
    etags: float = 0.0
    """Probability that a change of the user names the connector's etag, which it read up to some
    seconds before."""
    deleted_offsets: bool = False
    """The user resets what deleted connectors have left, too, and creates others of their names
    meanwhile."""


class TaskBody(Protocol):
    """The body of one run of a task, as its runner and the faults see it."""

    spec: TaskSpec
    dead: bool
    frozen: bool

    def begin(self) -> None: ...

    def command(self, command: TaskCommand) -> None: ...

    def silence(self, reason: str) -> None: ...

    def orphan(self) -> None: ...

    def die(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self, frozen_ms: int, silence_ms: int) -> None: ...


class Runner(Protocol):
    """The runs of one worker's tasks."""

    def bodies(self) -> Sequence[TaskBody]: ...

    def unreleased(self) -> Sequence[TaskSpec]: ...

    def kill_body(self, body: TaskBody) -> None: ...

    def freeze_body(self, body: TaskBody, for_ms: int) -> None: ...


class Worker(Protocol):
    """One incarnation of a worker."""

    name: str
    url: str
    dead: bool
    frozen: bool
    herder: Herder

    @property
    def runner(self) -> Runner: ...

    def crash(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def when_awake(self, action: Callable[[], None]) -> None: ...

    def ask(self, call_id: str, call: Call, hops: int, deadline_ms: int) -> None: ...

    def post(self, command: Command) -> None: ...

    def instances(self) -> Sequence[str]: ...

    def reported(self, report: TaskReported) -> None: ...


class Observer(Protocol):
    """Whoever is told of what happens, and raises when something breaks."""

    events: list[ConfigEvent]

    def broken(self, invariant: str, text: str) -> NoReturn: ...

    def config_appended(
        self, worker: Worker, records: ConfigRecords, *, privileged: bool
    ) -> None: ...

    def leadership_claimed(self, worker: Worker, generation: int) -> None: ...

    def offsets_written(self, worker: Worker, effect: AlterConnectorOffsets) -> None: ...

    def task_started(self, worker: Worker, spec: TaskSpec) -> None: ...

    def connector_started(self, worker: Worker, connector: str) -> None: ...

    def producer_initialised(self, spec: TaskSpec) -> None: ...

    def data_committed(self, spec: TaskSpec, records: Sequence[tuple[int, int]]) -> None: ...

    def sink_put(self, group: str, records: Sequence[ConsumerRecord]) -> None: ...

    def sink_committed(
        self, spec: TaskSpec, membership: Membership, offsets: Mapping[TopicPartition, int]
    ) -> None: ...

    def answered(self, call_id: str, before: bool) -> None: ...

    def decided(self, worker: Worker, effects: Sequence[Effect]) -> None: ...

    def user_asked(self, call: Call) -> None: ...

    def read_log(self) -> ConfigState: ...

    def intent_kept(self, connector: str, target: TargetState, since: int) -> None: ...

    def etag_held(self, connector: str, etag: int, begin: int, since: int) -> None: ...


class CallNetwork(Protocol):
    """Calls from worker to worker, and of users to workers."""

    def call(
        self, caller: Worker, token: int, url: str, call: Call, hops: int, timeout_ms: int
    ) -> None: ...

    def send(
        self, url: str, call: Call, hops: int, timeout_ms: int, deliver: Callable[[Result], None]
    ) -> None: ...

    def answer(self, call_id: str, result: Result) -> None: ...


class Freezing(Protocol):
    """Faults at a moment that the part itself reaches."""

    def freezes_writer(self, effect: Effect) -> bool: ...

    def freezes_committer(self, body: TaskBody, effect: BodyEffect) -> bool: ...


class World(Protocol):
    """A simulated cluster, as its parts see it."""

    options: Options
    seed: int
    schedule: Schedule
    transport: MemoryTransport
    claims: dict[str, int]
    faulty: bool

    @property
    def checks(self) -> Observer: ...

    @property
    def network(self) -> CallNetwork: ...

    @property
    def faults(self) -> Freezing: ...

    @property
    def workers(self) -> Mapping[str, Worker]: ...

    def start_worker(self, name: str) -> None: ...

    def body(self, spec: TaskSpec, report: Callable[[BodyReport], None]) -> TaskBody:
        """A new body for one run of a task; what it reports goes up its lifeline."""
        ...

    def connect(self, url: str) -> MemoryTransport: ...

    def worker_at(self, url: str) -> Worker | None: ...

    def is_member(self, worker: Worker) -> bool: ...

    def why_not_committing(self, membership: Membership) -> str: ...

    def message_lost(self) -> bool: ...
