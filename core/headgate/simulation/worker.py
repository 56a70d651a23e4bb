"""One worker in virtual time: a real herder, whose effects take time and sometimes go astray."""

from collections import deque
from collections.abc import Callable
from functools import partial

from headgate.herder import messages as m
from headgate.herder.herder import Herder
from headgate.herder.settings import HerderSettings
from headgate.ports import FencedError
from headgate.simulation.runner import SimulatedRunner
from headgate.simulation.source_body import PARTITIONS
from headgate.simulation.world import World
from headgate.topics.config_events import ConfigEvent
from headgate.topics.config_records import decode
from headgate.topics.status import decode_status

LOOK_MS = 20
"""How often a worker looks at the logs and its clock."""
READ_ALL = 1_000_000
LAG_PROBABILITY = 0.01
LAG_MS = (100, 1_500)
CONNECTOR_STOP_MS = 200
"""The most that `stop()` of a connector takes."""
CLASS_MS = 1_500
"""The most that a connector's class takes to look at a change of its offsets."""
OFFSETS_MS = 1_500
"""The most that writing a connector's offsets takes."""


class SimulatedWorker:
    """One incarnation of a worker: after a crash a new one takes its place under the same name."""

    def __init__(self, world: World, name: str, settings: HerderSettings) -> None:
        self.name = name
        self.url = settings.url
        self.worker_id = settings.worker_id
        self.dead = False
        self.frozen = False
        self._world = world
        self._schedule = world.schedule
        self._transport = world.connect(self.url)
        self.herder = Herder(settings, self._schedule.now_ms)
        self.runner = SimulatedRunner(world, self, settings.session_timeout_ms // 2)
        self._inbox: deque[m.Command] = deque()
        self._effects: deque[m.Effect] = deque()
        self._performing = False
        self._config_position = 0
        self._status_position = 0
        self._lagging_until = 0
        self._waiting: deque[Callable[[], None]] = deque()
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
        self.frozen = False
        waiting, self._waiting = self._waiting, deque()
        for action in waiting:
            self.when_awake(action)
        if not self.dead:
            self.runner.worker_awake()

    def when_awake(self, action: Callable[[], None]) -> None:
        """Now, or when it thaws; never, if it is dead."""
        if self.dead:
            return
        if self.frozen:
            self._waiting.append(action)
        else:
            action()

    def ask(self, call_id: str, call: m.Call, hops: int, deadline_ms: int) -> None:
        self.post(m.Called(call_id, call, hops, deadline_ms))

    def post(self, command: m.Command) -> None:
        self._inbox.append(command)
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
            self._inbox.append(m.ConfigRead(events))
        records, self._status_position = self._transport.status_log.read(self._status_position)
        if records:
            keyed = [((r.key or b"").decode(), r.value) for r in records]
            read = tuple((key, decode_status(key, value)) for key, value in keyed)
            self._inbox.append(m.StatusRead(read))
        for response in self._transport.group.receive():
            if not self._world.message_lost():
                self._inbox.append(m.GroupAnswered(response))
        deadline = self.herder.next_deadline_ms
        if deadline is not None and deadline <= self._schedule.now_ms:
            self._inbox.append(m.Tick())
        self._turn()

    def _lags(self) -> bool:
        """Records of the config topic may reach a worker late; reading to its end is another
        thing, and never lags."""
        if self._world.faulty and self._schedule.likely(LAG_PROBABILITY):
            lag = self._schedule.chance.randint(*LAG_MS)
            self._lagging_until = self._schedule.now_ms + lag
        return self._schedule.now_ms < self._lagging_until

    def _turn(self) -> None:
        while self._inbox and not self.herder.done:
            effects = self.herder.handle(self._schedule.now_ms, self._inbox.popleft())
            self._world.checks.decided(self, effects)
            self._effects.extend(effects)
        self._pump()

    def _next_events(self) -> tuple[ConfigEvent, ...]:
        records, self._config_position = self._transport.config_log.read(
            self._config_position, READ_ALL
        )
        return tuple(decode(r.offset, r.key, r.value) for r in records)

    def _pump(self) -> None:
        """Effects in order, each at an instant of its own."""
        if self._performing or not self._effects:
            return
        self._performing = True
        self._schedule.soon(lambda: self.when_awake(self._perform_next))

    def _perform_next(self) -> None:
        self._performing = False
        if self._world.faults.freezes_writer(self._effects[0]):
            self.freeze()
            self._schedule.after(2 * self._world.options.session_timeout_ms, self.thaw)
            self._pump()
            return
        effect = self._effects.popleft()
        outcome = self._perform(effect)
        if outcome is not None:
            self._later(outcome)
        self._pump()

    def _later(self, outcome: m.Command) -> None:
        self._schedule.soon(lambda: self.when_awake(partial(self.post, outcome)))

    # -- effects --

    def _perform(self, effect: m.Effect) -> m.Command | None:
        match effect:
            case m.AppendConfig():
                return self._append(effect)
            case m.ClaimLeadership(generation):
                return self._claim(generation)
            case m.ReadConfigToEnd(token):
                events = self._next_events()
                if events:
                    self._inbox.append(m.ConfigRead(events))
                return m.ConfigEndRead(token)
            case m.SendGroup(request):
                if not self._world.message_lost():
                    self._transport.group.send(request)
            case m.WriteStatus(key, value):
                self._transport.status_log.append([(key.encode(), value)])
            case m.FenceProducers(token, _, ids):
                self._transport.fencer.fence(ids)
                return m.ProducersFenced(token)
            case m.StartTask(spec):
                self._world.checks.task_started(self, spec)
                self.runner.start(spec)
            case m.SendTask(run, command):
                self.runner.send(run, command)
            case m.StopTaskBy(run, grace_ms):
                self.runner.stop(run, grace_ms)
            case m.MakeSessionKey(token, _, key_size):
                return m.SessionKeyMade(token, bytes(key_size // 8), self._schedule.now_ms)
            case m.AlterConnectorOffsets():
                self._alter_offsets(effect)
            case m.GiveUpAlteration(token) if token in self._asking:
                self._asking.remove(token)
                failure = m.Failure(m.ErrorKind.TIMEOUT, "given up")
                return m.ConnectorOffsetsAltered(token, failure=failure)
            case m.GiveUpAlteration():
                pass  # it is being written, or was
            case m.CallPeer(token, url, call, hops, timeout_ms):
                self._world.network.call(self, token, url, call, hops, timeout_ms)
            case m.Answer(call_id, result):
                self._world.network.answer(call_id, result)
            case _:
                return self._perform_on_connector(effect)
        return None

    def _append(self, effect: m.AppendConfig) -> m.Command:
        try:
            end = self._transport.config_log.append(effect.records, privileged=effect.privileged)
        except FencedError as error:
            return m.ConfigAppendFailed(effect.token, str(error), fenced=True)
        self._world.checks.config_appended(self, effect)
        if self._world.message_lost():
            return m.ConfigAppendFailed(effect.token, "no answer in time", fenced=False)
        return m.ConfigAppended(effect.token, end)

    def _claim(self, generation: int) -> m.Command:
        try:
            self._transport.config_log.claim(generation)
        except FencedError as error:
            return m.LeadershipClaimed(generation, str(error))
        self._world.checks.leadership_claimed(self, generation)
        return m.LeadershipClaimed(generation)

    def _alter_offsets(self, effect: m.AlterConnectorOffsets) -> None:
        """Takes its time, on a thread of its own: whatever the herder does meanwhile, no task may
        come near. (The offsets stay as they are: what tasks deliver is checked record by record.)
        """
        self._asking.add(effect.token)

        def asked() -> None:
            if effect.token not in self._asking:
                return  # given up
            self._asking.remove(effect.token)
            entry = self._world.checks.read_log().entry(effect.connector)
            if (
                not self.herder.leads
                or entry is None
                or entry.commit_offset != effect.commit_offset
            ):
                overtaken = m.Failure(m.ErrorKind.CONFLICT, "overtaken")
                self.post(m.ConnectorOffsetsAltered(effect.token, failure=overtaken))
                return
            self._world.checks.offsets_written(self, effect.connector)
            self._schedule.soon(lambda: self.when_awake(done), OFFSETS_MS)

        def done() -> None:
            self._world.checks.offsets_written(self, effect.connector)
            self.post(m.ConnectorOffsetsAltered(effect.token))

        self._schedule.soon(lambda: self.when_awake(asked), CLASS_MS)

    def _perform_on_connector(self, effect: m.Effect) -> m.Command | None:
        match effect:
            case m.ValidateConfig(token):
                return m.ConfigValidated(token, ())
            case m.StartConnector(connector, run, config):
                self._world.checks.connector_started(self, connector)
                self._connectors[connector, run] = dict(config)
                return m.ConnectorStarted(connector, run)
            case m.StopConnector(connector, run):
                stopped = partial(self._connector_stopped, connector, run)
                self._schedule.soon(lambda: self.when_awake(stopped), CONNECTOR_STOP_MS)
                return None
            case m.GenerateTaskConfigs(token, connector, run, tasks_max):
                if (connector, run) not in self._connectors:
                    return m.TaskConfigsGenerated(token, connector, error="the instance is gone")
                count = min(tasks_max, PARTITIONS)
                configs = tuple({"index": str(i), "count": str(count)} for i in range(count))
                return m.TaskConfigsGenerated(token, connector, configs)
            case _:
                raise AssertionError(f"unknown effect {effect!r}")

    def _connector_stopped(self, connector: str, run: int) -> None:
        self._connectors.pop((connector, run), None)
        self.post(m.ConnectorStopped(connector, run))

    def instances(self) -> list[str]:
        """Names of the connectors that have an instance here."""
        return [name for name, _ in self._connectors]

    # -- from its runner --

    def reported(self, report: m.TaskReported) -> None:
        self.when_awake(lambda: self.post(report))
