"""A whole cluster in one process: workers, tasks, users and faults in virtual time, from one seed.

    report = simulate(Options(seed=7))

raises `InvariantBroken` at the step that breaks something, and otherwise says what happened. The
same seed and options give the same run, step by step.
"""

from collections.abc import Callable
from dataclasses import dataclass

from headgate.connector.restart_policy import RestartPolicy
from headgate.connector.sink_names import sink_group
from headgate.herder.settings import HerderSettings
from headgate.ids import State, TargetState, TaskId
from headgate.membership.consumer import ConsumerSettings
from headgate.simulation.checks import Checks
from headgate.simulation.faults import Faults
from headgate.simulation.memory import MemoryCluster
from headgate.simulation.memory_clients import Membership
from headgate.simulation.memory_transport import MemoryTransport
from headgate.simulation.network import Network
from headgate.simulation.schedule import Schedule
from headgate.simulation.sink_body import SinkBody
from headgate.simulation.source_body import PARTITIONS, RECORDS, SourceBody
from headgate.simulation.user import NAMES, SINKS, SOURCES, User
from headgate.simulation.worker import SimulatedWorker
from headgate.simulation.world import Options, TaskBody, Worker
from headgate.task.messages import BodyReport, TaskKind, TaskSpec
from headgate.topics.status import StatusView, decode_status, fold_statuses

GROUP = "simulated"
TOPIC_PARTITIONS = 2
"""Fewer than source partitions, so that these share them; enough for two sink tasks."""
FLUSH_INTERVAL_MS = 300
KEY_TTL_MS = 7_000
ASK_EVERY_MS = 50
"""Virtual time between two looks at whether all has settled. A look costs more than many steps."""
CONSUMER_SESSION_MS = 1_000
"""Less than a lifeline may be silent: a sink task that froze can find itself shut out and alive."""


RESTARTS = RestartPolicy(restarts_max=10_000, backoff_ms=50, backoff_max_ms=2_000)
"""Policy where polls fail: a budget that no run uses up, so that everything must come back."""


@dataclass(frozen=True, slots=True)
class Report:
    seed: int
    steps: int
    virtual_ms: int
    settled_ms: int
    """How long it took to settle after the faults."""
    records: int
    """Records that sources committed."""
    delivered: int
    """Records that sinks put; those put twice are counted twice."""
    faults: dict[str, int]
    calls: int
    etags_held: int
    """Changes with an etag that were made."""
    etags_refused: int
    """And those that were not, because the connector had another."""
    offsets_changed: int
    left_reset: int
    """How many of these were offsets of deleted connectors."""
    rebalances: int
    restarts_met: dict[str, int]
    """How often each situation of the restart policy was met."""


class Cluster:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.seed = options.seed
        self.schedule = Schedule(options.seed)
        self.call_timeout_ms = 8_000
        self._memory = MemoryCluster(
            lambda: self.schedule.now_ms,
            consumer=ConsumerSettings(CONSUMER_SESSION_MS),
        )
        self.transport: MemoryTransport = MemoryTransport(self._memory, "observer")
        self.claims: dict[str, int] = {}
        self.checks = Checks(self)
        self.network = Network(self)
        self.user = User(self)
        self.faults = Faults(self)
        self.faulty = True
        self.workers: dict[str, SimulatedWorker] = {}
        self._incarnations = 0
        self.transport.record_log.create_topic("unused", 1)
        for name in SOURCES:
            self.transport.record_log.create_topic(name, TOPIC_PARTITIONS)
        for number in range(options.workers):
            self.start_worker(f"w{number + 1}")

    # -- workers --

    def start_worker(self, name: str) -> None:
        self._incarnations += 1
        url = f"{name}:{self._incarnations}"
        failing = self.options.failing_polls or self.options.failing_connectors
        settings = HerderSettings(
            worker_id=f"{name}.{self._incarnations}",
            url=url,
            group=GROUP,
            exactly_once_support="enabled",
            session_timeout_ms=self.options.session_timeout_ms,
            heartbeat_interval_ms=500,
            rebalance_timeout_ms=10_000,
            sync_timeout_ms=1_000,
            rebalance_delay_ms_max=2_000,
            task_stop_timeout_ms=500,
            connector_stop_timeout_ms=500,
            request_timeout_ms=self.call_timeout_ms,
            session_keys=True,
            restart=RESTARTS if failing else RestartPolicy(),
            key_ttl_ms=KEY_TTL_MS,
            worker_settings={"offset.flush.interval.ms": str(FLUSH_INTERVAL_MS)},
        )
        self.workers[name] = SimulatedWorker(self, name, settings)

    def body(self, spec: TaskSpec, report: Callable[[BodyReport], None]) -> TaskBody:
        kind = SinkBody if spec.kind is TaskKind.SINK else SourceBody
        return kind(self, spec, report)

    def connect(self, url: str) -> MemoryTransport:
        return MemoryTransport(self._memory, url)

    def worker_at(self, url: str) -> SimulatedWorker | None:
        for worker in self.workers.values():
            if worker.url == url and not worker.dead:
                return worker
        return None

    def is_member(self, worker: Worker) -> bool:
        return self._memory.coordinator.is_member(GROUP, worker.herder.view().member_id)

    def why_not_committing(self, membership: Membership) -> str:
        """Why the coordinator has this member commit no offsets; empty when it may."""
        error = self._memory.coordinator.check(*membership)
        return "" if error is None else error.value

    def message_lost(self) -> bool:
        return self.faulty and self.schedule.likely(self.options.lost_messages)

    # -- a run --

    def run(self) -> Report:
        options = self.options
        self.user.begin(options.faults_ms)
        self.faults.begin(options.faults_ms)
        while self.schedule.now_ms < options.faults_ms:
            self.schedule.step()
        self.faulty = False
        self.user.finish()
        deadline = options.faults_ms + options.settle_ms
        quiet_since: int | None = None
        asked_at = -ASK_EVERY_MS
        while True:
            self.schedule.step()
            now = self.schedule.now_ms
            if now - asked_at < ASK_EVERY_MS:
                continue
            asked_at = now
            why = self._unsettled()
            quiet_since = (quiet_since if quiet_since is not None else now) if not why else None
            if quiet_since is not None and now - quiet_since >= 1_000:
                break
            if now > deadline:
                self.checks.broken("10 to 13, liveness", f"not settled: {why}")
        self.checks.output_is_what_was_committed()
        return Report(
            seed=self.seed,
            steps=self.schedule.steps,
            virtual_ms=self.schedule.now_ms,
            settled_ms=quiet_since - options.faults_ms,
            records=self.checks.records(),
            delivered=self.checks.puts,
            faults=dict(self.faults.counts),
            calls=self.user.asked,
            etags_held=self.user.etags_held,
            etags_refused=self.user.etags_refused,
            offsets_changed=self.checks.offsets_changed,
            left_reset=self.checks.left_reset,
            rebalances=max(w.herder.view().rebalances for w in self.workers.values()),
            restarts_met=dict(self.checks.restarts.met),
        )

    def _unsettled(self) -> str:
        """What liveness still lacks; empty when nothing."""
        if self.user.open_calls:
            return f"{self.user.open_calls} calls without an answer"
        owners: dict[str, list[str]] = {}
        for worker in self.workers.values():
            if worker.dead or worker.frozen:
                return f"{worker.name} is away"
            view = worker.herder.view()
            if not view.settled:
                return f"{worker.name}: {', '.join(view.pending)}"
            for connector, state in view.connectors.items():
                if state is not State.RUNNING:
                    return f"{connector} is {state} on {worker.name}"
                owners.setdefault(connector, []).append(worker.name)
            for task in view.tasks:
                if task.state is not State.RUNNING:
                    return f"{task.task} is {task.state} on {worker.name}: {task.detail}"
                owners.setdefault(str(task.task), []).append(worker.name)
        return self._unowned(owners) or self._unfinished() or self._misreported(owners)

    def _unowned(self, owners: dict[str, list[str]]) -> str:
        state = self.checks.read_log()
        wanted = set(NAMES) | {str(task) for name in NAMES for task in state.tasks(name)}
        for name in NAMES:
            if state.target_state(name) is not TargetState.STARTED or not state.tasks(name):
                return f"{name} has target state {state.target_state(name)}, or no tasks"
        if set(owners) != wanted:
            return f"owned: {sorted(owners)}, configured: {sorted(wanted)}"
        for work, names in owners.items():
            if len(names) > 1:
                return f"{work} on {names}"
        return ""

    def _misreported(self, owners: dict[str, list[str]]) -> str:
        """The status topic says of all that is configured who has it, that it runs, and no more."""
        records, _ = self.transport.status_log.read(0)
        events = [decode_status(r.key or b"", r.value) for r in records]
        view = fold_statuses(StatusView(), events)
        statuses = dict(view.connectors)
        for name, tasks in view.tasks.items():
            statuses |= {str(TaskId(name, number)): status for number, status in tasks.items()}
        if set(statuses) != set(owners):
            return f"statuses of {sorted(statuses)}, owned: {sorted(owners)}"
        for work, status in statuses.items():
            owner = self.workers[owners[work][0]]
            if (status.state, status.worker_id) != (State.RUNNING, owner.worker_id):
                status_of = f"{status.state} on {status.worker_id}"
                return f"{work} is said to be {status_of}, it runs on {owner.worker_id}"
        return ""

    def _unfinished(self) -> str:
        for name in SOURCES:
            for partition in range(PARTITIONS):
                if self.checks.delivered(name, partition) < RECORDS:
                    return f"{name}/{partition}: {self.checks.delivered(name, partition)} records"
        log = self.transport.record_log
        for sink, topic in SINKS.items():
            committed = log.committed(sink_group(sink, {}))
            for place, end in log.end_offsets([topic]).items():
                if committed.get(place, 0) != end:
                    return f"{sink} has committed {committed.get(place)} of {end} of {place}"
        return ""


def simulate(options: Options) -> Report:
    """One run. Raises `InvariantBroken`."""
    return Cluster(options).run()
