"""The ports of one worker of a `HerderWorld`, with which its effects are performed."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from headgate import wire
from headgate.connector.config_providers import (
    ConfigProvider,
    has_references,
    reverse_transform,
    transform,
)
from headgate.herder import messages as m
from headgate.herder.calls import config_digest
from headgate.herder.tasks_given import tasks_max, tasks_max_enforced
from headgate.host.ports import ConfigRecords
from headgate.ids import TargetState
from headgate.membership.messages import GroupRequest
from headgate.ports import FencedError, TransportError
from headgate.task.messages import (
    FencingAnswered,
    PauseTask,
    ProducerInitialised,
    RecheckAnswered,
    ResumeTask,
    StopTask,
    TaskCommand,
    TaskEnded,
    TaskOutcome,
    TaskPaused,
    TaskRunning,
    TaskSpec,
)

if TYPE_CHECKING:
    from support.herder.world import HerderWorld, Worker

OVERTAKEN = "a later leader has claimed the log"


class _Vault(ConfigProvider):
    """A config provider of the world's secrets, as in ``${vault:KEY}``."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = secrets

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        return {key: self._secrets[key] for key in keys if key in self._secrets}


class WorldPorts:
    def __init__(self, world: "HerderWorld", worker: "Worker") -> None:
        self._world = world
        self._worker = worker

    # -- the logs and the group --

    def send_group(self, request: GroupRequest) -> None:
        world = self._world
        if self._worker.cut_off:
            return
        world.members += 1
        world.respond(world.coordinator.handle(world.now_ms, request, f"{world.members:03}"))

    def claim(self, generation: int) -> None:
        world = self._world
        if generation < world.claimed_generation:
            raise FencedError(OVERTAKEN)
        if world.claim_errors:
            raise TransportError(world.claim_errors.pop(0))
        world.claimed_generation, world.claimed_by = generation, self._worker.name

    def append(self, records: ConfigRecords, *, privileged: bool) -> int:
        world = self._world
        if privileged and world.claimed_by != self._worker.name:
            raise FencedError(OVERTAKEN)
        world.log.extend(records)
        return len(world.log)

    def read_to_end(self, token: int, *, statuses: bool) -> Sequence[m.Command]:
        world, worker = self._world, self._worker
        if worker.cut_off:
            return [m.ConfigEndRead(token, "the log is out of reach")]
        known: list[m.Command] = []
        if worker.read < len(world.log):
            known.append(world.read(worker))
        if statuses and worker.statuses_read < len(world.statuses):
            known.append(world.read_statuses(worker))
        return [*known, m.ConfigEndRead(token)]

    def await_statuses(self, token: int) -> Sequence[m.Command]:
        return [m.StatusesWritten(token)]

    def write_statuses(self, statuses: Sequence[m.WriteStatus]) -> None:
        self._world.statuses += [(status.key, status.value) for status in statuses]

    # -- offsets --

    def read_offsets(self, effect: m.ReadConnectorOffsets) -> m.ConnectorOffsetsRead:
        known = self._world.offsets.get(effect.connector, ())
        return m.ConnectorOffsetsRead(effect.token, tuple(known))

    def alter_offsets(self, effect: m.AlterConnectorOffsets) -> m.ConnectorOffsetsAltered:
        refused = effect.config.get("offsets.error")
        if refused:
            failure = m.Failure(m.ErrorKind.BAD_REQUEST, refused)
            return m.ConnectorOffsetsAltered(effect.token, failure=failure)
        self._world.offsets[effect.connector] = list(effect.offsets or ())
        return m.ConnectorOffsetsAltered(effect.token, handled="managed" in effect.config)

    def give_up_alteration(self, token: int) -> m.Failure | None:
        """Give up an alteration of offsets that the test holds, unless it is already `writing`.
        Until then it is with its connector's class."""
        world = self._world
        for held in list(world.held):
            if getattr(held[1], "token", None) == token and not world.writing:
                world.held.remove(held)
                return m.Failure(m.ErrorKind.TIMEOUT, "given up")
        return None

    # -- connectors --

    def validate(self, name: str, config: Mapping[str, str | None]) -> tuple[str, ...]:
        wrong = config.get("invalid")
        return (wrong,) if wrong else ()

    def start_connector(self, effect: m.StartConnector) -> m.ConnectorStarted | m.ConnectorFailed:
        reason = effect.config.get("start.error")
        if reason:
            return m.ConnectorFailed(effect.connector, effect.run, reason, f"trace of: {reason}")
        self._worker.configs[effect.connector, effect.run] = dict(effect.config)
        return m.ConnectorStarted(effect.connector, effect.run)

    def stop_connector(self, effect: m.StopConnector) -> m.ConnectorStopped:
        self._worker.configs.pop((effect.connector, effect.run), None)
        return m.ConnectorStopped(effect.connector, effect.run)

    def generate_task_configs(self, effect: m.GenerateTaskConfigs) -> m.TaskConfigsGenerated:
        config = self._worker.configs.get((effect.connector, effect.run))
        if config is None or config.get("tasks.error"):
            return m.TaskConfigsGenerated(effect.token, effect.connector, error="no task configs")
        known = transform(config, {"vault": _Vault(self._world.secrets)})
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

    # -- calls and others --

    def make_session_key(self, key_size: int) -> tuple[bytes, int]:
        now_ms = self._world.now_ms
        return now_ms.to_bytes(key_size // 8), now_ms  # no two alike

    def set_logger_level(self, logger: str, level: str) -> None:
        """Do nothing: the trace shows the effect."""

    def fence(self, connector: str, transactional_ids: Sequence[str]) -> None:
        if self._world.fence_errors:
            raise TransportError(self._world.fence_errors.pop(0))

    def call_peer(self, url: str, token: int, call: m.Call, hops: int, ms: int) -> None:
        world, worker = self._world, self._worker
        target = next((w for w in world.workers.values() if url == f"http://{w.name}/"), None)
        copy = wire.loads(m.Call, wire.dumps(call))
        if target is None or target.dead or target.cut_off or worker.cut_off:
            failure = m.Failure(m.ErrorKind.TIMEOUT, f"{url} is silent")
            world.later.append((world.now_ms + ms, worker, m.PeerAnswered(token, failure)))
            return
        call_id = f"peer {worker.name} {token}"
        target.host.post(m.Called(call_id, copy, hops, world.now_ms + ms))

    def answer(self, call_id: str, result: m.Result) -> None:
        """Deliver an answer. It must be plain data, since it goes to other threads and processes as
        it is."""
        copy = wire.loads(m.Success | m.Failure, wire.dumps(result))
        assert copy == result
        if not call_id.startswith("peer "):
            self._world.answers[call_id].append(result)
            return
        _, name, token = call_id.split()
        caller = self._world.workers[name]
        if not caller.dead:
            caller.host.post(m.PeerAnswered(int(token), copy))

    # -- bodies --

    def start_task(self, spec: TaskSpec) -> None:
        world, worker = self._world, self._worker
        worker.runs[spec.run] = spec
        if spec.task in world.silent_bodies:
            return
        if spec.target_state is TargetState.PAUSED:
            worker.parked.add(spec.run)
            world.report(worker.name, spec.run, TaskPaused())
        else:
            world.begin(worker, spec)

    def send_task(self, run: str, command: TaskCommand) -> None:
        world, worker = self._world, self._worker
        spec = worker.runs.get(run)
        if spec is None or spec.task in world.silent_bodies:
            return
        match command:
            case FencingAnswered(None):
                world.report(worker.name, spec.run, ProducerInitialised())
            case FencingAnswered(error):
                ended = TaskEnded(TaskOutcome.FAILED, error or "", f"trace of: {error}")
                world.end(worker, spec, ended)
            case RecheckAnswered(None):
                paused = worker.starting.pop(spec.run)
                world.report(worker.name, spec.run, TaskPaused() if paused else TaskRunning())
            case RecheckAnswered(reason):
                world.end(worker, spec, TaskEnded(TaskOutcome.ABANDONED, reason or ""))
            case (PauseTask() | ResumeTask()) as told if spec.run in worker.starting:
                worker.starting[spec.run] = isinstance(told, PauseTask)
            case PauseTask():
                world.report(worker.name, spec.run, TaskPaused())
            case ResumeTask() if spec.run in worker.parked:
                worker.parked.discard(spec.run)
                world.begin(worker, spec)
            case ResumeTask():
                world.report(worker.name, spec.run, TaskRunning())
            case StopTask():
                world.end(worker, spec, TaskEnded(TaskOutcome.STOPPED))

    def stop_task(self, run: str, grace_ms: int) -> None:
        spec = self._worker.runs.get(run)
        if spec is not None:
            self._world.end(self._worker, spec, TaskEnded(TaskOutcome.STOPPED))
