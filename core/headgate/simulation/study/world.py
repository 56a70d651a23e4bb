"""The cluster of a study: the simulation's worker, herder, coordinator and log, without its chance
faults and its made-up user. What goes wrong is what the study says."""

from collections.abc import Callable
from functools import partial

from headgate.herder.messages import Effect
from headgate.host.ports import ConfigRecords
from headgate.membership.coordinator import CoordinatorSettings, GroupState
from headgate.membership.messages import GroupRequest, LeaveGroup, SyncGroup
from headgate.simulation.checks import Checks
from headgate.simulation.memory import MemoryCluster
from headgate.simulation.memory_clients import Membership
from headgate.simulation.memory_transport import MemoryTransport
from headgate.simulation.network import Network
from headgate.simulation.schedule import Schedule
from headgate.simulation.study.body import StudyBody
from headgate.simulation.study.facts import Change
from headgate.simulation.study.model import Study
from headgate.simulation.study.record import Record, worker_of
from headgate.simulation.study.worker import GROUP, StudyWorker
from headgate.simulation.world import Options, TaskBody, Worker
from headgate.task.messages import BodyReport, TaskSpec
from headgate.task.steps import BodyEffect


class NoFaults:
    """Nothing freezes by chance."""

    def freezes_writer(self, effect: Effect) -> bool:
        return False

    def freezes_committer(self, body: TaskBody, effect: BodyEffect) -> bool:
        return False


class StudyChecks(Checks):
    """The simulation's checks, and the record's eye on the config topic."""

    def __init__(self, world: "StudyWorld") -> None:
        super().__init__(world)
        self._record = world.record

    def config_appended(self, worker: Worker, records: ConfigRecords, *, privileged: bool) -> None:
        super().config_appended(worker, records, privileged=privileged)
        self._record.config(self.state)


class StudyWorld:
    """One run's cluster: a `World`, with the study's workers in it."""

    def __init__(self, study: Study, seed: int, *, trace: bool = False) -> None:
        self.study = study
        self.options = Options(seed=seed, lost_messages=0.0)
        self.seed = seed
        self.schedule = Schedule(seed)
        self.faulty = False
        self.claims: dict[str, int] = {}
        self.record = Record(lambda: self.schedule.now_ms, trace=trace)
        self._memory = MemoryCluster(
            lambda: self.schedule.now_ms,
            settings=CoordinatorSettings(study.first_delay_ms),
        )
        self.transport = MemoryTransport(self._memory, "observer")
        self.checks = StudyChecks(self)
        self.network = Network(self)
        self.faults = NoFaults()
        self.workers: dict[str, StudyWorker] = {}
        self._incarnations: dict[str, int] = {}
        self._members: tuple[str, ...] = ()
        self._alarm_ms: int | None = None

    # -- workers --

    def start_worker(self, name: str) -> None:
        number = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        self.record.worker(name, Change.STARTED)
        self.workers[name] = StudyWorker(self, name, number, self.study.settings_of(name))

    def alive(self) -> list[StudyWorker]:
        """Workers whose process is there, frozen ones included, by number."""
        found = [worker for worker in self.workers.values() if not worker.dead]
        return sorted(found, key=lambda worker: int(worker.name[1:]))

    def body(self, spec: TaskSpec, report: Callable[[BodyReport], None]) -> TaskBody:
        name = spec.worker_id.partition(".")[0]
        worker = self.workers[name]
        told = partial(self.record.task, name)
        return StudyBody(
            spec, self.schedule, report, told, worker.task_start_ms, worker.task_stop_ms
        )

    def connect(self, url: str) -> MemoryTransport:
        return MemoryTransport(self._memory, url)

    def worker_at(self, url: str) -> StudyWorker | None:
        found = self.workers.get(url.partition(":")[0])
        return found if found is not None and found.url == url and not found.dead else None

    def is_member(self, worker: Worker) -> bool:
        return self._memory.coordinator.is_member(GROUP, worker.herder.view().member_id)

    def why_not_committing(self, membership: Membership) -> str:
        """No task of a study commits offsets."""
        return ""

    def message_lost(self) -> bool:
        return False

    # -- the broker --

    def config_grew(self, end: int) -> None:
        for worker in self.alive():
            worker.told_config(end)

    def statuses_grew(self) -> None:
        for worker in self.alive():
            worker.told_statuses()

    def coordinated(self, request: GroupRequest | None) -> None:
        """The coordinator has handled `request`, or time has passed."""
        coordinator = self._memory.coordinator
        for member_id in self._members:
            if not coordinator.is_member(GROUP, member_id):
                left = isinstance(request, LeaveGroup) and request.member_id == member_id
                self.record.gone(member_id, "left the group" if left else self._silent(member_id))
        self._members = coordinator.members(GROUP)
        for worker in self.alive():
            for response in worker.mail():
                self.record.answered(response)
            worker.take_mail()
        if isinstance(request, SyncGroup) and request.assignments and self._accepted(request):
            self.record.synced(request)
        self._set_alarm()

    def _accepted(self, request: SyncGroup) -> bool:
        coordinator = self._memory.coordinator
        stable = coordinator.state(GROUP) is GroupState.STABLE
        return stable and request.generation == coordinator.generation(GROUP)

    def _silent(self, member_id: str) -> str:
        worker = self.workers[worker_of(member_id)]
        if worker.dead or worker.frozen:
            return "was silent for session.timeout.ms"
        return "did not join within rebalance.timeout.ms"

    def _set_alarm(self) -> None:
        """Have the coordinator look when a session or a round may end."""
        deadline_ms = self._memory.coordinator.next_deadline_ms
        if deadline_ms is None or (self._alarm_ms is not None and self._alarm_ms <= deadline_ms):
            return
        self._alarm_ms = deadline_ms
        delay_ms = deadline_ms - self.schedule.now_ms
        self.schedule.after(delay_ms, partial(self._alarm, deadline_ms))

    def _alarm(self, at_ms: int) -> None:
        if self._alarm_ms == at_ms:
            self._alarm_ms = None
        self._memory.tick()
        self.coordinated(None)
