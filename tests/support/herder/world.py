"""Several herders in one process, in virtual time, with the smallest world that they can run in.

The log is a list, and the group's coordinator is the machine of the core. Runners and connectors do
at once what they are asked, and calls arrive at once. A test *holds* the effects that it wants to
delay or to answer itself. Whole clusters with faults are in `headgate.simulation`; this world is
for stories about decisions.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from support.herder.ports import WorldPorts

from headgate.herder import messages as m
from headgate.herder.herder import Herder
from headgate.herder.settings import HerderSettings, Plugin
from headgate.host.host import HerderHost
from headgate.host.ports import HostPorts
from headgate.host.work import Work
from headgate.ids import TargetState, TaskId
from headgate.membership.coordinator import Coordinator
from headgate.task.messages import (
    FencingRequested,
    TaskEnded,
    TaskKind,
    TaskReleased,
    TaskReport,
    TaskRunning,
    TaskSpec,
)
from headgate.topics.config_records import decode
from headgate.topics.status import decode_status

SILENT = (m.SendGroup, m.ReadConfigToEnd, m.ValidateConfig, m.AwaitStatuses)
"""Effects that appear in every story, and are left out of the trace."""


@dataclass
class Worker:
    name: str
    herder: Herder
    ports: HostPorts = field(init=False)
    host: HerderHost = field(init=False)
    read: int = 0
    """Number of records of the config log that the worker was given."""
    statuses_read: int = 0
    statuses_lag: bool = False
    """The worker gets no new statuses, unless it asks for all up to the end."""
    cut_off: bool = False
    """The worker's requests to the group are lost, it reads nothing new, and no other worker
    reaches it."""
    frozen: bool = False
    dead: bool = False
    runs: dict[str, TaskSpec] = field(default_factory=dict)
    parked: set[str] = field(default_factory=set)
    """Runs that were started PAUSED and have done nothing yet."""
    starting: dict[str, bool] = field(default_factory=dict)
    """Runs that wait for an answer before they run, and whether each is to be PAUSED then."""
    configs: dict[tuple[str, int], dict[str, str | None]] = field(default_factory=dict)


class Holding:
    """The schedule of one worker: effects are performed at once, except those that a test holds.
    Answers go through the inbox in order."""

    def __init__(self, world: "HerderWorld", worker: Worker) -> None:
        self._world = world
        self._worker = worker

    def run(self, work: Work) -> tuple[()]:
        for effect in work.effects:
            held = any(hold(self._worker, effect) for hold in self._world.holds)
            if held or (isinstance(effect, m.AwaitStatuses) and self._holds_statuses()):
                self._world.held.append((self._worker, effect))
            else:
                self._world.perform(self._worker, effect)
        return ()

    def _holds_statuses(self) -> bool:
        """Return whether a status is held. An effect that awaits statuses then stays behind it."""
        held = (effect for worker, effect in self._world.held if worker is self._worker)
        return any(isinstance(effect, m.WriteStatus) for effect in held)


class HerderWorld:
    def __init__(self, *, checked: bool = True) -> None:
        """With `checked`, each herder checks all its tables after each command."""
        self.now_ms = 0
        self._checked = checked
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
        self.members = 0

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
        worker.ports = WorldPorts(self, worker)
        worker.host = HerderHost(
            worker.herder,
            worker.ports,
            Holding(self, worker),
            lambda: self.now_ms,
            decided=lambda _, effects: self._traced(worker, effects),
            checked=self._checked,
        )
        self.workers[name] = worker
        worker.host.post(m.Tick())
        return worker

    # -- asking --

    def call(self, worker: str, call: m.Call, deadline_ms: int | None = None) -> str:
        self._calls += 1
        call_id = f"call-{self._calls}"
        self.answers[call_id] = []
        deadline = None if deadline_ms is None else self.now_ms + deadline_ms
        self.workers[worker].host.post(m.Called(call_id, call, deadline_ms=deadline))
        return call_id

    def give(self, worker: str, command: m.Command) -> None:
        self.workers[worker].host.post(command)

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
        """Do everything that can happen without time passing."""
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
        """Advance until every live worker calls itself settled. Return how long that took, in
        ms."""
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
        self.respond(self.coordinator.tick(self.now_ms))
        for item in [item for item in self.later if item[0] <= self.now_ms]:
            self.later.remove(item)
            item[1].host.post(item[2])
        for worker in self.workers.values():
            if self._awake(worker):
                worker.host.post(m.Tick())

    def _awake(self, worker: Worker) -> bool:
        return not (worker.dead or worker.frozen or worker.herder.done)

    def _turn(self, worker: Worker) -> bool:
        if not self._awake(worker):
            return False
        if not worker.host.inbox and not worker.cut_off:
            self._read_news(worker)
        deadline = worker.herder.next_deadline_ms
        if not worker.host.inbox and deadline is not None and deadline <= self.now_ms:
            worker.host.post(m.Tick())
        if not worker.host.inbox:
            return False
        return worker.host.turn()

    def _read_news(self, worker: Worker) -> None:
        if worker.read < len(self.log):
            worker.host.post(self.read(worker))
        elif worker.statuses_read < len(self.statuses) and not worker.statuses_lag:
            worker.host.post(self.read_statuses(worker))

    def read_statuses(self, worker: Worker) -> m.StatusRead:
        news = self.statuses[worker.statuses_read :]
        worker.statuses_read = len(self.statuses)
        return m.StatusRead(tuple((key, decode_status(key, value)) for key, value in news))

    def read(self, worker: Worker) -> m.ConfigRead:
        events = tuple(
            decode(offset, self.log[offset][0].encode(), self.log[offset][1])
            for offset in range(worker.read, len(self.log))
        )
        worker.read = len(self.log)
        return m.ConfigRead(events)

    # -- effects --

    def _traced(self, worker: Worker, effects: Iterable[m.Effect]) -> None:
        for effect in effects:
            if not isinstance(effect, SILENT):
                self.trace.append(f"{worker.name}: {shown(effect)}")

    def release(self) -> None:
        """Perform the effects that were held, and hold no more."""
        self.holds.clear()
        held, self.held = self.held, []
        for worker, effect in held:
            self.perform(worker, effect)

    def perform(self, worker: Worker, effect: m.Effect) -> None:
        for answer in Work((effect,), worker.ports).perform():
            worker.host.post(answer)

    def respond(self, responses: Iterable[object]) -> None:
        for response in responses:
            name = response.member_id.rpartition("-")[0]  # type: ignore[attr-defined]
            worker = self.workers.get(name)
            if worker is not None and not worker.cut_off and not worker.dead:
                worker.host.post(m.GroupAnswered(response))  # type: ignore[arg-type]

    # -- bodies --

    def begin(self, worker: Worker, spec: TaskSpec) -> None:
        if spec.exactly_once:
            worker.starting[spec.run] = False
            self.report(worker.name, spec.run, FencingRequested())
        else:
            self.report(worker.name, spec.run, TaskRunning())

    def end(self, worker: Worker, spec: TaskSpec, ended: TaskEnded) -> None:
        worker.runs.pop(spec.run, None)
        worker.starting.pop(spec.run, None)
        self.report(worker.name, spec.run, ended, TaskReleased())

    def end_task(self, worker: str, task: TaskId, ended: TaskEnded) -> None:
        """End the body of the task's present run, as if of its own accord."""
        found = self.workers[worker]
        self.end(found, found.runs[self.run_of(worker, task)], ended)

    # -- troubles --

    def kill(self, name: str) -> None:
        worker = self.workers[name]
        worker.dead = True
        worker.runs.clear()

    def lose_coordinator(self, name: str) -> None:
        self.give(name, m.CoordinatorLost("no answer"))

    # -- what is seen --

    def running(self) -> dict[str, list[str]]:
        """Return, by worker, the tasks of which a run exists."""
        return {
            w.name: sorted(str(spec.task) for spec in w.runs.values())
            for w in self.workers.values()
            if not w.dead
        }


def shown(effect: m.Effect) -> str:
    """Return the line of the trace for an effect."""
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
