"""One worker in virtual time: a real `HerderHost`, whose work takes time and sometimes goes astray.

Work of one lane keeps its order, each piece at an instant of its own. All else happens in any order
that `headgate.host.work` permits, as it does on a worker's threads.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

from headgate.herder import messages as m
from headgate.herder.herder import Herder
from headgate.herder.offset_changes import is_as_it_was
from headgate.herder.settings import HerderSettings
from headgate.host.host import HerderHost
from headgate.host.ports import ConfigRecords
from headgate.host.work import Lane, Work
from headgate.membership.messages import GroupRequest
from headgate.ports import TransportError
from headgate.simulation.runner import SimulatedRunner
from headgate.simulation.sleeper import Sleeper
from headgate.simulation.source_body import PARTITIONS, error_of
from headgate.simulation.world import SLOW_MS, World
from headgate.task.messages import TaskCommand, TaskSpec
from headgate.topics.config_events import ConfigEvent
from headgate.topics.config_records import decode
from headgate.topics.status import decode_status

LOOK_MS = 20
"""How often a worker looks at the logs and its clock."""
READ_ALL = 1_000_000
WORK_MS = 20
LAG_PROBABILITY = 0.01
LAG_MS = (100, 1_500)
CONNECTOR_FAILS_MS = (50, 2_000)
"""How long a connector that fails has run before."""
CONNECTOR_STOP_MS = 200
"""The most that `stop()` of a connector takes."""
CLASS_MS = 1_500
"""The most that a connector's class takes to look at a change of its offsets."""
OFFSETS_MS = 1_500
"""The most that writing a connector's offsets takes."""


class SimulatedWorker(Sleeper):
    """One incarnation of a worker: after a crash a new one takes its place under the same name."""

    def __init__(
        self, world: World, name: str, settings: HerderSettings, *, checked: bool = True
    ) -> None:
        """`checked`: `HerderHost`'s."""
        super().__init__()
        self.name = name
        self.url = settings.url
        self.worker_id = settings.worker_id
        self._world = world
        self._schedule = world.schedule
        self._transport = world.connect(self.url)
        self.herder = Herder(settings, self._schedule.now_ms)
        self.runner = SimulatedRunner(world, self, settings.session_timeout_ms // 2)
        self.host = HerderHost(
            self.herder,
            self,
            self,
            lambda: self._schedule.now_ms,
            decided=lambda _, effects: world.checks.decided(self, effects),
            checked=checked,
        )
        self._lanes: dict[Lane, deque[Work]] = {}
        """Work that is still to be done, by lane; work without a lane has one of its own."""
        self._works = 0
        self._config_position = 0
        self._status_position = 0
        self._lagging_until = 0
        self._connectors: dict[tuple[str, int], dict[str, str | None]] = {}
        self._asking: set[int] = set()
        """Changes of offsets that are at their connector's class."""
        self._schedule.soon(self._look)

    # -- what happens to it --

    def crash(self) -> None:
        self.dead = True
        self.runner.worker_gone()

    def freeze(self) -> None:
        self.frozen = True
        self.runner.worker_silent()

    def thaw(self) -> None:
        self.wake()
        if not self.dead:
            self.runner.worker_awake()

    def ask(self, call_id: str, call: m.Call, hops: int, deadline_ms: int) -> None:
        self.post(m.Called(call_id, call, hops, deadline_ms))

    def post(self, command: m.Command) -> None:
        self.host.post(command)
        self._schedule.soon(lambda: self.when_awake(self._turn), 5)

    # -- the loop --

    def _look(self) -> None:
        """What the loop of a real worker does between two commands."""
        if self.dead:
            return
        self.when_awake(self._look_awake)
        self._schedule.after(LOOK_MS, self._look)

    def _look_awake(self) -> None:
        if self.herder.done:
            return
        events = () if self._lags() else self._next_events()
        if events:
            self.host.post(m.ConfigRead(events))
        self._read_statuses()
        for response in self._transport.group.receive():
            if not self._world.message_lost():
                self.host.post(m.GroupAnswered(response))
        deadline = self.herder.next_deadline_ms
        if deadline is not None and deadline <= self._schedule.now_ms:
            self.host.post(m.Tick())
        self._turn()

    def _read_statuses(self) -> None:
        records, self._status_position = self._transport.status_log.read(self._status_position)
        if records:
            keyed = [((r.key or b"").decode(), r.value) for r in records]
            read = tuple((key, decode_status(key, value)) for key, value in keyed)
            self.host.post(m.StatusRead(read))

    def _lags(self) -> bool:
        """Records of the config topic may reach a worker late; reading to its end is another
        thing, and never lags."""
        if self._world.faulty and self._schedule.likely(LAG_PROBABILITY):
            lag = self._schedule.chance.randint(*LAG_MS)
            self._lagging_until = self._schedule.now_ms + lag
        return self._schedule.now_ms < self._lagging_until

    def _turn(self) -> None:
        while self.host.turn():
            pass

    def _next_events(self) -> tuple[ConfigEvent, ...]:
        records, self._config_position = self._transport.config_log.read(
            self._config_position, READ_ALL
        )
        return tuple(decode(r.offset, r.key, r.value) for r in records)

    # -- the schedule --

    def run(self, work: Work) -> Sequence[m.Command]:
        """Each piece of work at an instant of its own; statuses of one decision, too."""
        self._works += 1
        lane = work.lane or ("alone", self._works)
        waiting = self._lanes.setdefault(lane, deque())
        begin = not waiting
        waiting.extend(Work((effect,), work.ports) for effect in work.effects)
        if begin:
            self._go_on(lane)
        return ()

    def _go_on(self, lane: Lane) -> None:
        probability = self._world.options.slow_work
        slow = probability and self._world.faulty and self._schedule.likely(probability)
        most_ms = SLOW_MS if slow else WORK_MS
        self._schedule.soon(lambda: self.when_awake(partial(self._perform_next, lane)), most_ms)

    def _perform_next(self, lane: Lane) -> None:
        waiting = self._lanes[lane]
        if self._world.faults.freezes_writer(waiting[0].effects[0]):
            self.freeze()
            self._schedule.after(2 * self._world.options.session_timeout_ms, self.thaw)
            self._go_on(lane)
            return
        for answer in waiting.popleft().perform():
            self._later(answer)
        if waiting:
            self._go_on(lane)
        else:
            del self._lanes[lane]

    def _later(self, answer: m.Command) -> None:
        self._schedule.soon(lambda: self.when_awake(partial(self.post, answer)))

    # -- the ports: the logs and the group --

    def claim(self, generation: int) -> None:
        self._transport.config_log.claim(generation)
        self._world.checks.leadership_claimed(self, generation)

    def append(self, records: ConfigRecords, *, privileged: bool) -> int:
        end = self._transport.config_log.append(records, privileged=privileged)
        self._world.checks.config_appended(self, records, privileged=privileged)
        if self._world.message_lost():
            raise TransportError("no answer in time")
        return end

    def read_to_end(self, token: int, *, statuses: bool) -> Sequence[m.Command]:
        events = self._next_events()
        if events:
            self.host.post(m.ConfigRead(events))  # before whatever is read later
        if statuses:
            self._read_statuses()
        return (m.ConfigEndRead(token),)

    def await_statuses(self, token: int) -> Sequence[m.Command]:
        return (m.StatusesWritten(token),)

    def write_statuses(self, statuses: Sequence[m.WriteStatus]) -> None:
        self._transport.status_log.append([(each.key.encode(), each.value) for each in statuses])

    def send_group(self, request: GroupRequest) -> None:
        if not self._world.message_lost():
            self._transport.group.send(request)

    # -- tasks, calls and others --

    def start_task(self, spec: TaskSpec) -> None:
        self._world.checks.task_started(self, spec)
        self.runner.start(spec)

    def send_task(self, run: str, command: TaskCommand) -> None:
        self.runner.send(run, command)

    def stop_task(self, run: str, grace_ms: int) -> None:
        self.runner.stop(run, grace_ms)

    def fence(self, connector: str, transactional_ids: Sequence[str]) -> None:
        self._transport.fencer.fence(transactional_ids)

    def call_peer(self, url: str, token: int, call: m.Call, hops: int, ms: int) -> None:
        self._world.network.call(self, token, url, call, hops, ms)

    def answer(self, call_id: str, result: m.Result) -> None:
        self._world.network.answer(call_id, result)

    def make_session_key(self, key_size: int) -> tuple[bytes, int]:
        return bytes(key_size // 8), self._schedule.now_ms

    def set_logger_level(self, logger: str, level: str) -> None:
        """No user of the simulation asks for it."""
        raise AssertionError(f"logger {logger}: {level}")

    # -- offsets --

    def read_offsets(self, effect: m.ReadConnectorOffsets) -> m.ConnectorOffsetsRead:
        """Likewise."""
        raise AssertionError(f"unknown effect {effect!r}")

    def give_up_alteration(self, token: int) -> m.Failure | None:
        if token not in self._asking:
            return None  # it is being written, or was
        self._asking.remove(token)
        return m.Failure(m.ErrorKind.TIMEOUT, "given up")

    def alter_offsets(self, effect: m.AlterConnectorOffsets) -> None:
        """Takes its time, on a thread of its own: whatever the herder does meanwhile, no task may
        come near. (The offsets stay as they are: what tasks deliver is checked record by record.)
        """
        self._asking.add(effect.token)

        def asked() -> None:
            if effect.token not in self._asking:
                return  # given up
            self._asking.remove(effect.token)
            if not self.herder.leads or not is_as_it_was(self._world.checks.read_log(), effect):
                overtaken = m.Failure(m.ErrorKind.CONFLICT, "overtaken")
                self.post(m.ConnectorOffsetsAltered(effect.token, failure=overtaken))
                return
            self._world.checks.offsets_written(self, effect)
            self._schedule.soon(lambda: self.when_awake(done), OFFSETS_MS)

        def done() -> None:
            self._world.checks.offsets_written(self, effect)
            self.post(m.ConnectorOffsetsAltered(effect.token))

        self._schedule.soon(lambda: self.when_awake(asked), CLASS_MS)

    # -- connectors --

    def validate(self, name: str, config: Mapping[str, str | None]) -> tuple[str, ...]:
        return ()

    def start_connector(self, effect: m.StartConnector) -> m.ConnectorStarted | m.ConnectorFailed:
        self._world.checks.connector_started(self, effect.connector)
        connector, run = effect.connector, effect.run
        if self._connector_fails():
            return self._connector_failed(connector, run)
        self._connectors[connector, run] = dict(effect.config)
        if self._connector_fails():
            late_ms = self._schedule.chance.randint(*CONNECTOR_FAILS_MS)
            fail = partial(self._fail_connector, connector, run)
            self._schedule.after(late_ms, lambda: self.when_awake(fail))
        return m.ConnectorStarted(connector, run)

    def _connector_fails(self) -> bool:
        probability = self._world.options.failing_connectors
        return bool(probability) and self._world.faulty and self._schedule.likely(probability)

    def _connector_failed(self, connector: str, run: int) -> m.ConnectorFailed:
        error = error_of(self._world)
        return m.ConnectorFailed(connector, run, error, f"Traceback\n{error}")

    def _fail_connector(self, connector: str, run: int) -> None:
        if (connector, run) in self._connectors:
            self.post(self._connector_failed(connector, run))

    def stop_connector(self, effect: m.StopConnector) -> None:
        stopped = partial(self._connector_stopped, effect.connector, effect.run)
        self._schedule.soon(lambda: self.when_awake(stopped), CONNECTOR_STOP_MS)

    def generate_task_configs(self, effect: m.GenerateTaskConfigs) -> m.TaskConfigsGenerated:
        token, connector = effect.token, effect.connector
        if (connector, effect.run) not in self._connectors:
            return m.TaskConfigsGenerated(token, connector, error="the instance is gone")
        if self._connector_fails():
            return m.TaskConfigsGenerated(token, connector, error="task_configs raised")
        count = min(effect.tasks_max, PARTITIONS)
        configs = tuple({"index": str(i), "count": str(count)} for i in range(count))
        return m.TaskConfigsGenerated(token, connector, configs)

    def _connector_stopped(self, connector: str, run: int) -> None:
        self._connectors.pop((connector, run), None)
        self.post(m.ConnectorStopped(connector, run))

    def instances(self) -> list[str]:
        """Names of the connectors that have an instance here."""
        return [name for name, _ in self._connectors]

    # -- from its runner --

    def reported(self, report: m.TaskReported) -> None:
        self.when_awake(lambda: self.post(report))
