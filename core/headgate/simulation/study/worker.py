"""A worker of a study: the simulation's, which looks when a message arrives and not all the time.

So a virtual hour of a group at rest costs little more than its heartbeats.
"""

from collections.abc import Callable, Sequence
from functools import partial

from headgate.herder import messages as m
from headgate.herder.settings import HerderSettings
from headgate.host.ports import ConfigRecords
from headgate.host.work import Lane
from headgate.membership.messages import GroupRequest, GroupResponse
from headgate.membership.protocols import COMPATIBLE, DEFAULT, HEADGATE, SESSIONED
from headgate.simulation.study.facts import Change
from headgate.simulation.study.model import WorkerSettings
from headgate.simulation.study.parts import StudyParts
from headgate.simulation.worker import SimulatedWorker
from headgate.topics.config_events import ConfigEvent
from headgate.topics.config_records import decode

GROUP = "connect-cluster"
OFFERED = {
    "headgate": (HEADGATE,),
    "sessioned": (SESSIONED, COMPATIBLE, DEFAULT),
    "compatible": (COMPATIBLE, DEFAULT),
    "eager": (DEFAULT,),
}
"""Protocols offered to the group by `connect.protocol`, as by a Java worker. Source:
`ConnectProtocolCompatibility`."""


def herder_settings(name: str, incarnation: int, settings: WorkerSettings) -> HerderSettings:
    """What the herder of one incarnation of worker `name` is told."""
    return HerderSettings(
        worker_id=f"{name}.{incarnation}",
        url=f"{name}:{incarnation}",
        group=GROUP,
        protocols=OFFERED[settings.protocol],
        policy=settings.policy,
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        sync_timeout_ms=settings.sync_timeout_ms,
        rebalance_delay_ms_max=settings.rebalance_delay_ms,
        task_stop_timeout_ms=settings.task_stop_timeout_ms,
        session_keys=settings.protocol == "sessioned",
    )


class StudyWorker(SimulatedWorker):
    """One incarnation of a worker. What it is sent arrives after the study's message delay, in the
    order in which it was sent."""

    def __init__(
        self, parts: StudyParts, name: str, incarnation: int, settings: WorkerSettings
    ) -> None:
        self._parts = parts
        self._settings = settings
        self._readable = parts.transport.config_log.end()
        """End of the config topic as far as the broker has sent it to this worker."""
        self._arrived_ms = 0
        """When the last message to this worker arrives."""
        self._alarm_ms: int | None = None
        self.stopping = False
        self.on_gone: list[Callable[[], None]] = []
        super().__init__(parts, name, herder_settings(name, incarnation, settings), checked=False)
        self.task_start_ms, self.task_stop_ms = settings.task_start_ms, settings.task_stop_ms

    # -- what happens to it --

    def crash(self) -> None:
        """The process is gone, its tasks with it."""
        self._parts.record.worker(self.name, Change.CRASHED)
        for body in self.runner.bodies():
            body.die()
        super().crash()
        self._tell_gone()

    def stop(self) -> None:
        """As by SIGTERM: stops its work, leaves the group, and ends."""
        self.stopping = True
        self._parts.record.worker(self.name, Change.STOPPING)
        self.when_awake(lambda: self.post(m.Shutdown()))

    def freeze_for(self, ms: int) -> None:
        """The process stands still, its tasks with it, as in a long garbage collection."""
        self._parts.record.worker(self.name, Change.FROZEN)
        for body in self.runner.bodies():
            body.freeze()
        self.freeze()
        self._schedule.after(ms, lambda: self._thaw(ms))

    def _thaw(self, ms: int) -> None:
        if self.dead:
            return
        self._parts.record.worker(self.name, Change.AWAKE)
        for body in self.runner.bodies():
            body.thaw(ms, ms + 1)
        self.thaw()

    def _end_if_done(self) -> None:
        if self.dead or not self.herder.done or self._lanes:
            return
        self._parts.record.worker(self.name, Change.STOPPED)
        for body in self.runner.bodies():
            body.die()
        self.dead = True
        self._tell_gone()

    def _tell_gone(self) -> None:
        for action in self.on_gone:
            action()

    # -- messages to it --

    def arrives(self, action: Callable[[], None]) -> None:
        """`action` at the worker, one message delay from now and after all that was sent before."""
        delay_ms = self._schedule.chance.randint(*self._settings.message_ms)
        now_ms = self._schedule.now_ms
        self._arrived_ms = max(self._arrived_ms, now_ms + delay_ms)
        self._schedule.after(self._arrived_ms - now_ms, lambda: self.when_awake(action))

    def told_config(self, end: int) -> None:
        """The config topic has records up to `end`."""
        self.arrives(lambda: self._reads_config(end))

    def told_statuses(self) -> None:
        """The status topic has new records."""
        self.arrives(self._reads_statuses)

    def mail(self) -> Sequence[GroupResponse]:
        """What the coordinator has answered and the broker has not sent."""
        return self._transport.group.mailbox

    def take_mail(self) -> None:
        """Have what the coordinator has answered sent to it."""
        mailbox = self._transport.group.mailbox
        responses, mailbox[:] = list(mailbox), []
        for response in responses:
            self.arrives(partial(self._answered, response))

    def _reads_config(self, end: int) -> None:
        self._readable = max(self._readable, end)
        events = self._next_events()
        if events:
            self.host.post(m.ConfigRead(events))
        self._turn()

    def _reads_statuses(self) -> None:
        self._read_statuses()
        self._turn()

    def _answered(self, response: GroupResponse) -> None:
        self._parts.record.received(self.name, response)
        self.host.post(m.GroupAnswered(response))
        self._turn()

    # -- its loop --

    def _look(self) -> None:
        """Once, at its start: what comes later is told."""
        self.host.post(m.Tick())
        self.when_awake(self._look_awake)

    def _turn(self) -> None:
        super()._turn()
        self._end_if_done()
        deadline_ms = self.herder.next_deadline_ms
        if self.dead or deadline_ms is None:
            return
        if self._alarm_ms is None or deadline_ms < self._alarm_ms:
            self._alarm_ms = deadline_ms
            delay_ms = deadline_ms - self._schedule.now_ms
            self._schedule.after(delay_ms, partial(self._alarm, deadline_ms))

    def _alarm(self, at_ms: int) -> None:
        if self._alarm_ms == at_ms:
            self._alarm_ms = None
            self.when_awake(self._tick)

    def _tick(self) -> None:
        deadline_ms = self.herder.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= self._schedule.now_ms:
            self.host.post(m.Tick())
        self._turn()

    def _next_events(self) -> tuple[ConfigEvent, ...]:
        """What has arrived of the config topic and was not read."""
        count = self._readable - self._config_position
        records, self._config_position = self._transport.config_log.read(
            self._config_position, max(count, 0)
        )
        return tuple(decode(r.offset, r.key, r.value) for r in records)

    # -- its work --

    def _go_on(self, lane: Lane) -> None:
        delay_ms = self._schedule.chance.randint(*self._settings.message_ms)
        action = partial(self._perform_next, lane)
        self._schedule.after(delay_ms, lambda: self.when_awake(action))

    def _perform_next(self, lane: Lane) -> None:
        super()._perform_next(lane)
        self._end_if_done()

    def read_to_end(self, token: int, *, statuses: bool) -> Sequence[m.Command]:
        self._readable = self._transport.config_log.end()
        return super().read_to_end(token, statuses=statuses)

    def append(self, records: ConfigRecords, *, privileged: bool) -> int:
        end = super().append(records, privileged=privileged)
        self._parts.config_grew(end)
        return end

    def write_statuses(self, statuses: Sequence[m.WriteStatus]) -> None:
        super().write_statuses(statuses)
        self._parts.statuses_grew()

    def send_group(self, request: GroupRequest) -> None:
        self._parts.record.sending(self, request)
        super().send_group(request)
        self._parts.coordinated(request)

    def generate_task_configs(self, effect: m.GenerateTaskConfigs) -> m.TaskConfigsGenerated:
        """As many as the connector may have."""
        token, connector = effect.token, effect.connector
        if (connector, effect.run) not in self._connectors:
            return m.TaskConfigsGenerated(token, connector, error="the instance is gone")
        configs = tuple({"task": str(number)} for number in range(effect.tasks_max))
        return m.TaskConfigsGenerated(token, connector, configs)
