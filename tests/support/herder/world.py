"""Several herders in one process, in virtual time, with the least of a world around them.

A log in a list, the group's coordinator machine, runners and connectors that do at once what they
are asked, calls that arrive at once. Whatever a test wants to delay or to answer itself it *holds*.
(Whole clusters with faults are `headgate.simulation`; this one is for stories about decisions.)
"""

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from headgate import wire
from headgate.connector.config_providers import (
    ConfigProvider,
    has_references,
    reverse_transform,
    transform,
)
from headgate.herder import messages as m
from headgate.herder.calls import config_digest
from headgate.herder.connectors import tasks_max, tasks_max_enforced
from headgate.herder.herder import Herder
from headgate.herder.settings import HerderSettings, Plugin
from headgate.ids import TargetState, TaskId
from headgate.membership.coordinator import Coordinator
from headgate.task.messages import (
    FencingAnswered,
    FencingRequested,
    PauseTask,
    ProducerInitialised,
    RecheckAnswered,
    ResumeTask,
    StopTask,
    TaskEnded,
    TaskKind,
    TaskOutcome,
    TaskPaused,
    TaskReleased,
    TaskReport,
    TaskRunning,
    TaskSpec,
)
from headgate.topics.config_records import decode
from headgate.topics.status import decode_status

SILENT = (m.SendGroup, m.ReadConfigToEnd, m.ValidateConfig)
"""Effects that every story is full of."""


@dataclass
class Worker:
    name: str
    herder: Herder
    inbox: deque[m.Command] = field(default_factory=deque)
    read: int = 0
    """Records of the config log it was given."""
    statuses_read: int = 0
    cut_off: bool = False
    """Its requests to the group are lost, it reads nothing new, and nobody reaches it."""
    frozen: bool = False
    dead: bool = False
    runs: dict[str, TaskSpec] = field(default_factory=dict)
    parked: set[str] = field(default_factory=set)
    """Runs that were started PAUSED and have done nothing yet."""
    starting: dict[str, bool] = field(default_factory=dict)
    """Runs that wait for an answer before they run -> whether they are to be PAUSED then."""
    configs: dict[tuple[str, int], dict[str, str | None]] = field(default_factory=dict)


class _Vault(ConfigProvider):
    """Knows all that the world does: ``${vault:KEY}``."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = secrets

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        return {key: self._secrets[key] for key in keys if key in self._secrets}


class HerderWorld:
    def __init__(self) -> None:
        self.now_ms = 0
        self.secrets: dict[str, str] = {}
        """What connector configs refer to as ``${vault:KEY}``."""
        self.log: list[tuple[str, bytes | None]] = []
        self.offsets: dict[str, list[m.OffsetChange]] = {}
        """By connector, as they were set last."""
        self.writing = False
        """Whether the changes of offsets that are held have come to their writing."""
        self.statuses: list[tuple[str, bytes | None]] = []
        self.claimed_by: str | None = None
        self.claimed_generation = -1
        self.coordinator = Coordinator()
        self.workers: dict[str, Worker] = {}
        self.member_of: dict[str, Worker] = {}
        self.trace: list[str] = []
        self.answers: dict[str, list[m.Result]] = {}
        self.held: list[tuple[Worker, m.Effect]] = []
        self.holds: list[Callable[[Worker, m.Effect], bool]] = []
        self.later: list[tuple[int, Worker, m.Command]] = []
        self.claim_errors: list[str] = []
        """What comes of the next claims of the config topic; those after them succeed."""
        self.fence_errors: list[str] = []
        """What comes of the next rounds of fencing; those after them succeed."""
        self.silent_bodies: set[TaskId] = set()
        """Tasks whose bodies report nothing by themselves."""
        self._calls = 0
        self._members = 0

    # -- setting up --

    def add(self, name: str, **settings: object) -> Worker:
        given: dict[str, object] = {
            "worker_id": name,
            "url": f"http://{name}/",
            "rebalance_delay_ms_max": 3_000,
            "plugins": {"Source": Plugin(TaskKind.SOURCE), "Sink": Plugin(TaskKind.SINK, "1.2.3")},
            **settings,
        }
        if given.pop("exactly_once", False):
            given["exactly_once_support"] = "enabled"
        worker = Worker(name, Herder(HerderSettings(**given), self.now_ms))  # type: ignore[arg-type]
        self.workers[name] = worker
        worker.inbox.append(m.Tick())
        return worker

    # -- asking --

    def call(self, worker: str, call: m.Call, deadline_ms: int | None = None) -> str:
        self._calls += 1
        call_id = f"call-{self._calls}"
        self.answers[call_id] = []
        deadline = None if deadline_ms is None else self.now_ms + deadline_ms
        self.workers[worker].inbox.append(m.Called(call_id, call, deadline_ms=deadline))
        return call_id

    def give(self, worker: str, command: m.Command) -> None:
        self.workers[worker].inbox.append(command)

    def report(self, worker: str, run: str, *reports: TaskReport) -> None:
        for report in reports:
            self.give(worker, m.TaskReported(run, report))

    def run_of(self, worker: str, task: TaskId) -> str:
        runs = self.workers[worker].runs
        found = [run for run, spec in runs.items() if spec.task == task]
        assert found, f"{worker} has no run of {task}: {runs}"
        return found[-1]

    # -- time --

    def run(self, turns_max: int = 100_000) -> None:
        """Everything that can happen without time passing."""
        for _ in range(turns_max):
            if sum(map(self._turn, list(self.workers.values()))) == 0:
                return
        raise AssertionError(f"no end after {turns_max} turns: {self.trace[-20:]}")

    def advance(self, ms: int) -> None:
        end = self.now_ms + ms
        self.run()
        while (next_ms := self._next_ms()) <= end:
            self.now_ms = max(next_ms, self.now_ms)
            self._tick_all()
            self.run()
        self.now_ms = end
        self._tick_all()
        self.run()

    def until_settled(self, limit_ms: int = 60_000) -> int:
        """Advance until every live worker calls itself settled; returns how long it took."""
        start = self.now_ms
        self.run()
        while not all(w.herder.view().settled for w in self._live()):
            pending = {w.name: w.herder.view().pending for w in self._live()}
            assert self.now_ms - start < limit_ms, f"not settled after {limit_ms} ms: {pending}"
            self.advance(50)
        return self.now_ms - start

    def _live(self) -> Iterable[Worker]:
        return [w for w in self.workers.values() if self._awake(w) and not w.cut_off]

    def _next_ms(self) -> int:
        deadlines = [w.herder.next_deadline_ms for w in self.workers.values() if self._awake(w)]
        deadlines.append(self.coordinator.next_deadline_ms)
        deadlines += [due_ms for due_ms, _, _ in self.later]
        # A deadline that has passed is of something that waits for its turn: one at a time.
        return min((max(d, self.now_ms + 1) for d in deadlines if d is not None), default=1 << 62)

    def _tick_all(self) -> None:
        self._respond(self.coordinator.tick(self.now_ms))
        for item in [item for item in self.later if item[0] <= self.now_ms]:
            self.later.remove(item)
            item[1].inbox.append(item[2])
        for worker in self.workers.values():
            if self._awake(worker):
                worker.inbox.append(m.Tick())

    def _awake(self, worker: Worker) -> bool:
        return not (worker.dead or worker.frozen or worker.herder.done)

    def _turn(self, worker: Worker) -> bool:
        if not self._awake(worker):
            return False
        if not worker.inbox and not worker.cut_off:
            self._read_news(worker)
        deadline = worker.herder.next_deadline_ms
        if not worker.inbox and deadline is not None and deadline <= self.now_ms:
            worker.inbox.append(m.Tick())
        if not worker.inbox:
            return False
        command = worker.inbox.popleft()
        for effect in worker.herder.handle(self.now_ms, command):
            self._effect(worker, effect)
        return True

    def _read_news(self, worker: Worker) -> None:
        if worker.read < len(self.log):
            worker.inbox.append(self._read(worker))
        elif worker.statuses_read < len(self.statuses):
            news = self.statuses[worker.statuses_read :]
            records = tuple((key, decode_status(key, value)) for key, value in news)
            worker.statuses_read = len(self.statuses)
            worker.inbox.append(m.StatusRead(records))

    def _read(self, worker: Worker) -> m.ConfigRead:
        events = tuple(
            decode(offset, self.log[offset][0].encode(), self.log[offset][1])
            for offset in range(worker.read, len(self.log))
        )
        worker.read = len(self.log)
        return m.ConfigRead(events)

    # -- effects --

    def _effect(self, worker: Worker, effect: m.Effect) -> None:
        if not isinstance(effect, SILENT):
            self.trace.append(f"{worker.name}: {shown(effect)}")
        if any(hold(worker, effect) for hold in self.holds):
            self.held.append((worker, effect))
        else:
            self.perform(worker, effect)

    def release(self) -> None:
        """Perform what was held, and hold nothing more."""
        self.holds.clear()
        held, self.held = self.held, []
        for worker, effect in held:
            self.perform(worker, effect)

    def perform(self, worker: Worker, effect: m.Effect) -> None:
        answer = getattr(self, f"_on_{type(effect).__name__}")(worker, effect)
        if answer is not None:
            worker.inbox.append(answer)

    def _on_SendGroup(self, worker: Worker, effect: m.SendGroup) -> None:  # noqa: N802
        if worker.cut_off:
            return
        self._members += 1
        self._respond(self.coordinator.handle(self.now_ms, effect.request, f"{self._members:03}"))

    def _respond(self, responses: Iterable[object]) -> None:
        for response in responses:
            name = response.member_id.rpartition("-")[0]  # type: ignore[attr-defined]
            worker = self.workers.get(name)
            if worker is not None and not worker.cut_off and not worker.dead:
                worker.inbox.append(m.GroupAnswered(response))  # type: ignore[arg-type]

    def _on_ClaimLeadership(self, worker: Worker, effect: m.ClaimLeadership) -> m.Command:  # noqa: N802
        if effect.generation < self.claimed_generation:
            return m.LeadershipClaimed(effect.generation, "a later leader has claimed the log")
        if self.claim_errors:
            return m.LeadershipClaimed(effect.generation, self.claim_errors.pop(0))
        self.claimed_generation, self.claimed_by = effect.generation, worker.name
        return m.LeadershipClaimed(effect.generation)

    def _on_AppendConfig(self, worker: Worker, effect: m.AppendConfig) -> m.Command:  # noqa: N802
        if effect.privileged and self.claimed_by != worker.name:
            return m.ConfigAppendFailed(effect.token, "a later leader has claimed the log", True)
        self.log.extend(effect.records)
        return m.ConfigAppended(effect.token, len(self.log))

    def _on_ReadConfigToEnd(self, worker: Worker, effect: m.ReadConfigToEnd) -> None:  # noqa: N802
        if worker.cut_off:
            worker.inbox.append(m.ConfigEndRead(effect.token, "the log is out of reach"))
            return
        if worker.read < len(self.log):
            worker.inbox.append(self._read(worker))
        worker.inbox.append(m.ConfigEndRead(effect.token))

    def _on_ReadConnectorOffsets(  # noqa: N802
        self, _worker: Worker, effect: m.ReadConnectorOffsets
    ) -> m.Command:
        return m.ConnectorOffsetsRead(effect.token, tuple(self.offsets.get(effect.connector, ())))

    def _on_AlterConnectorOffsets(  # noqa: N802
        self, _worker: Worker, effect: m.AlterConnectorOffsets
    ) -> m.Command:
        refused = effect.config.get("offsets.error")
        if refused:
            failure = m.Failure(m.ErrorKind.BAD_REQUEST, refused)
            return m.ConnectorOffsetsAltered(effect.token, failure=failure)
        self.offsets[effect.connector] = list(effect.offsets or ())
        return m.ConnectorOffsetsAltered(effect.token, handled="managed" in effect.config)

    def _on_GiveUpAlteration(  # noqa: N802
        self, _worker: Worker, effect: m.GiveUpAlteration
    ) -> m.Command | None:
        """One that is held is at its connector's class, unless it is `writing`."""
        for held in list(self.held):
            if getattr(held[1], "token", None) == effect.token and not self.writing:
                self.held.remove(held)
                failure = m.Failure(m.ErrorKind.TIMEOUT, "given up")
                return m.ConnectorOffsetsAltered(effect.token, failure=failure)
        return None

    def _on_MakeSessionKey(  # noqa: N802
        self, _worker: Worker, effect: m.MakeSessionKey
    ) -> m.Command:
        key = self.now_ms.to_bytes(effect.key_size // 8)  # no two alike
        return m.SessionKeyMade(effect.token, key, self.now_ms)

    def _on_ApplyLoggerLevel(  # noqa: N802
        self, _worker: Worker, _effect: m.ApplyLoggerLevel
    ) -> None:
        pass

    def _on_WriteStatus(self, _worker: Worker, effect: m.WriteStatus) -> None:  # noqa: N802
        self.statuses.append((effect.key, effect.value))

    def _on_ValidateConfig(self, _worker: Worker, effect: m.ValidateConfig) -> m.Command:  # noqa: N802
        wrong = effect.config.get("invalid")
        return m.ConfigValidated(effect.token, (wrong,) if wrong else ())

    def _on_StartConnector(self, worker: Worker, effect: m.StartConnector) -> m.Command:  # noqa: N802
        reason = effect.config.get("start.error")
        if reason:
            return m.ConnectorFailed(effect.connector, effect.run, reason, f"trace of: {reason}")
        worker.configs[effect.connector, effect.run] = dict(effect.config)
        return m.ConnectorStarted(effect.connector, effect.run)

    def _on_StopConnector(self, worker: Worker, effect: m.StopConnector) -> m.Command:  # noqa: N802
        worker.configs.pop((effect.connector, effect.run), None)
        return m.ConnectorStopped(effect.connector, effect.run)

    def _on_GenerateTaskConfigs(  # noqa: N802
        self, worker: Worker, effect: m.GenerateTaskConfigs
    ) -> m.Command:
        config = worker.configs.get((effect.connector, effect.run))
        if config is None or config.get("tasks.error"):
            return m.TaskConfigsGenerated(effect.token, effect.connector, error="no task configs")
        known = transform(config, {"vault": _Vault(self.secrets)})
        now = known.config
        found = (
            m.ResolvedConnector(config_digest(now), tasks_max(now), tasks_max_enforced(now))
            if has_references(config)
            else None
        )
        limit = effect.tasks_max if found is None else found.tasks_max
        count = int(now.get("tasks") or limit)
        configs = tuple(
            reverse_transform(config, {"task": str(n), "v": now.get("v") or ""})
            for n in range(count)
        )
        return m.TaskConfigsGenerated(effect.token, effect.connector, configs, resolved=found)

    def _on_FenceProducers(self, _worker: Worker, effect: m.FenceProducers) -> m.Command:  # noqa: N802
        return m.ProducersFenced(
            effect.token, self.fence_errors.pop(0) if self.fence_errors else None
        )

    def _on_CallPeer(self, worker: Worker, effect: m.CallPeer) -> m.Command | None:  # noqa: N802
        target = next((w for w in self.workers.values() if effect.url == f"http://{w.name}/"), None)
        call = wire.loads(m.Call, wire.dumps(effect.call))
        if target is None or target.dead or target.cut_off or worker.cut_off:
            failure = m.Failure(m.ErrorKind.TIMEOUT, f"{effect.url} is silent")
            due_ms = self.now_ms + effect.timeout_ms
            self.later.append((due_ms, worker, m.PeerAnswered(effect.token, failure)))
            return None
        call_id = f"peer {worker.name} {effect.token}"
        deadline = self.now_ms + effect.timeout_ms
        target.inbox.append(m.Called(call_id, call, effect.hops, deadline))
        return None

    def _on_Answer(self, _worker: Worker, effect: m.Answer) -> None:  # noqa: N802
        if effect.call_id.startswith("peer "):
            _, name, token = effect.call_id.split()
            caller = self.workers[name]
            result = wire.loads(m.Success | m.Failure, wire.dumps(effect.result))
            if not caller.dead:
                caller.inbox.append(m.PeerAnswered(int(token), result))
            return
        self.answers[effect.call_id].append(effect.result)

    # -- bodies --

    def _on_StartTask(self, worker: Worker, effect: m.StartTask) -> None:  # noqa: N802
        spec = effect.spec
        worker.runs[spec.run] = spec
        if spec.task in self.silent_bodies:
            return
        if spec.target_state is TargetState.PAUSED:
            worker.parked.add(spec.run)
            self.report(worker.name, spec.run, TaskPaused())
        else:
            self._begin(worker, spec)

    def _begin(self, worker: Worker, spec: TaskSpec) -> None:
        if spec.exactly_once:
            worker.starting[spec.run] = False
            self.report(worker.name, spec.run, FencingRequested())
        else:
            self.report(worker.name, spec.run, TaskRunning())

    def _on_SendTask(self, worker: Worker, effect: m.SendTask) -> None:  # noqa: N802
        spec = worker.runs.get(effect.run)
        if spec is None or spec.task in self.silent_bodies:
            return
        match effect.command:
            case FencingAnswered(None):
                self.report(worker.name, spec.run, ProducerInitialised())
            case FencingAnswered(error):
                ended = TaskEnded(TaskOutcome.FAILED, error or "", f"trace of: {error}")
                self._end(worker, spec, ended)
            case RecheckAnswered(None):
                paused = worker.starting.pop(spec.run)
                self.report(worker.name, spec.run, TaskPaused() if paused else TaskRunning())
            case RecheckAnswered(reason):
                self._end(worker, spec, TaskEnded(TaskOutcome.ABANDONED, reason or ""))
            case (PauseTask() | ResumeTask()) as told if spec.run in worker.starting:
                worker.starting[spec.run] = isinstance(told, PauseTask)
            case PauseTask():
                self.report(worker.name, spec.run, TaskPaused())
            case ResumeTask() if spec.run in worker.parked:
                worker.parked.discard(spec.run)
                self._begin(worker, spec)
            case ResumeTask():
                self.report(worker.name, spec.run, TaskRunning())
            case StopTask():
                self._end(worker, spec, TaskEnded(TaskOutcome.STOPPED))

    def _on_StopTaskBy(self, worker: Worker, effect: m.StopTaskBy) -> None:  # noqa: N802
        spec = worker.runs.get(effect.run)
        if spec is not None:
            self._end(worker, spec, TaskEnded(TaskOutcome.STOPPED))

    def _end(self, worker: Worker, spec: TaskSpec, ended: TaskEnded) -> None:
        worker.runs.pop(spec.run, None)
        worker.starting.pop(spec.run, None)
        self.report(worker.name, spec.run, ended, TaskReleased())

    def end_task(self, worker: str, task: TaskId, ended: TaskEnded) -> None:
        """The body of the task's present run ends of its own accord."""
        found = self.workers[worker]
        self._end(found, found.runs[self.run_of(worker, task)], ended)

    # -- troubles --

    def kill(self, name: str) -> None:
        worker = self.workers[name]
        worker.dead = True
        worker.runs.clear()

    def lose_coordinator(self, name: str) -> None:
        self.give(name, m.CoordinatorLost("no answer"))

    # -- what is seen --

    def running(self) -> dict[str, list[str]]:
        """Tasks of which a run exists, by worker."""
        return {
            w.name: sorted(str(spec.task) for spec in w.runs.values())
            for w in self.workers.values()
            if not w.dead
        }


def shown(effect: m.Effect) -> str:
    """One line of a trace."""
    match effect:
        case m.AppendConfig(_, records, privileged):
            how = "" if privileged else " (plain)"
            keys = ", ".join(key if value is not None else f"-{key}" for key, value in records)
            return f"append{how} {keys}"
        case m.ClaimLeadership(generation):
            return f"claim leadership of generation {generation}"
        case m.WriteStatus(key, value):
            if value is None:
                return f"status -{key.removeprefix('status-')}"
            status = json.loads(value)
            if "topic" in status:
                return f"status {key.removeprefix('status-')} of task {status['topic']['task']}"
            trace = f" ({status['trace']})" if status["trace"] else ""
            return f"status {key.removeprefix('status-')} {status['state']}{trace}"
        case m.StartConnector(connector, run):
            return f"start connector {connector} (run {run})"
        case m.StopConnector(connector, run):
            return f"stop connector {connector} (run {run})"
        case m.GenerateTaskConfigs(_, connector, _, tasks_max):
            return f"generate task configs of {connector}, at most {tasks_max}"
        case m.StartTask(spec):
            mode = " exactly-once" if spec.exactly_once else ""
            paused = " PAUSED" if spec.target_state is TargetState.PAUSED else ""
            return f"start task {spec.task} of commit {spec.commit_offset}{mode}{paused}"
        case m.SendTask(run, command):
            return f"tell {run.rpartition('.')[2]} {command}"
        case m.StopTaskBy(run, grace_ms):
            return f"stop run {run.rpartition('.')[2]} within {grace_ms} ms"
        case m.ReadConnectorOffsets(connector=connector, kind=kind):
            return f"read offsets of {kind.value} {connector}"
        case m.AlterConnectorOffsets(connector=connector, offsets=offsets, transactional_id=tid):
            how = f" as {tid}" if tid else ""
            what = "all" if offsets is None else json.dumps(offsets)
            return f"alter offsets of {connector}{how}: {what}"
        case m.GiveUpAlteration():
            return "give up altering offsets"
        case m.MakeSessionKey(_, algorithm, key_size):
            return f"make a session key: {algorithm}, {key_size} bits"
        case m.ApplyLoggerLevel(logger, level):
            return f"set logger {logger} to {level}"
        case m.FenceProducers(_, connector, ids):
            return f"fence producers of {connector}: {', '.join(ids)}"
        case m.CallPeer(_, url, call, hops):
            return f"call {url} {type(call).__name__} hops={hops}"
        case m.Answer(call_id, m.Success()):
            return f"answer {call_id.partition(' ')[0]}: success"
        case m.Answer(call_id, m.Failure(kind, message)):
            return f"answer {call_id.partition(' ')[0]}: {kind.value}: {message}"
        case _:
            return str(effect)
