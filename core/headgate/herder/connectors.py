"""Connector instances of this worker: their starts, their stops and their task configs.

`Connectors._reconcile` brings an instance to its wanted state, one step at a time. The wanted state
follows from the log and the assignment. Source: Connect's WorkerConnector and DistributedHerder
(startConnector, processConnectorConfigUpdates, reconfigureConnector).

An instance exists only while its connector is STARTED. For PAUSED and STOPPED it is stopped and
dropped (Java keeps the stopped object). A FAILED connector stays FAILED until it is reconfigured,
restarted or STOPPED.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headgate.connector.restart_policy import RestartPolicy, restart_policy
from headgate.herder.calls import config_digest
from headgate.herder.context import (
    Ask,
    ConnectorReleased,
    Context,
    FromConnector,
    GenerateAgain,
    Restarted,
    RestartFailedConnector,
    Unplaced,
    retry_delay_ms,
)
from headgate.herder.messages import (
    ConnectorFailed,
    ErrorKind,
    Failure,
    GenerateTaskConfigs,
    PutTaskConfigs,
    Result,
    StartConnector,
    StopConnector,
    Success,
    TaskConfigsGenerated,
)
from headgate.herder.privileged import task_configs_changed
from headgate.herder.statuses import Statuses
from headgate.herder.tasks_given import tasks_max, tasks_max_enforced, too_many, with_topics
from headgate.ids import State, TargetState
from headgate.topics.config_events import Config
from headgate.topics.config_state import ConnectorEntry

_AT_REST = {TargetState.PAUSED: State.PAUSED, TargetState.STOPPED: State.STOPPED}


class Phase(StrEnum):
    ABSENT = "absent"
    STARTING = "starting"
    STARTED = "started"
    STOPPING = "stopping"


class Generating(StrEnum):
    """Progress of a connector's next task configs."""

    IDLE = "idle"
    ASKED = "asked"
    PUBLISHING = "publishing"
    BACKING_OFF = "backing off"


@dataclass(slots=True)
class Instance:
    name: str
    phase: Phase = Phase.ABSENT
    run: int = 0
    config: Config | None = None
    """Config that the present or last run was started with."""
    failed: bool = False
    restarts: int = 0
    """Restarts in a row by the restart policy."""
    counted: bool = False
    """`restarts` is known: it continues the last owner's count, or begins anew."""
    started_ms: int | None = None
    """When the present or last run had started; None: it had not."""
    revoked: bool = False
    restart: bool = False
    show_restarting: bool = False
    """The stop is part of a restart, and the status becomes RESTARTING after it."""
    shown: State | None = None
    """State in this worker's last status of the connector; None: it has written none."""
    tickets: tuple[int, ...] = ()
    """Tickets of restart requests, which are answered once task configs are published."""
    generating: Generating = Generating.IDLE
    token: int = 0
    """Token of the generation of task configs under way."""
    failures: int = 0
    again: bool = False
    """Another generation was asked for while one was under way."""
    applied_digest: str | None = None
    """Digest of the resolved connector config behind the task configs in force, as far as this
    instance knows. Source: AppliedConnectorConfig."""
    published: tuple[str, int | None] | None = None
    """Digest that task configs were last published with, and the commit that was in force then."""
    error_text: str = ""
    """Why the present run failed or gave no task configs, in one line. Empty: neither is so."""


class Connectors:
    def __init__(self, ctx: Context, statuses: Statuses) -> None:
        self._ctx = ctx
        self._statuses = statuses
        self._held: dict[str, Instance] = {}
        self._waiting: dict[str, None] = {}
        """Instances that are new, or that may not start before the membership is stable."""
        self._busy: dict[str, None] = {}
        """Instances that may have something under way. `pending` drops the others."""
        self._run_count = 0
        self.startups = [0, 0]
        """Number of starts that succeeded, and of those that failed."""

    # -- what the group and the log say --

    def assign(self, names: Iterable[str]) -> None:
        for name in names:
            found = self._held.get(name)
            if found is None:
                self._held[name] = Instance(name)
                self._ctx.news.changed(name)
                self._waiting[name] = None
            else:
                found.revoked = False

    def revoke(self, names: Iterable[str]) -> None:
        """Stop these connectors. `ConnectorReleased` follows for each that was held, at once if
        nothing of it is alive."""
        for name in names:
            found = self._held.get(name)
            if found is not None:
                found.revoked = True
                self._reconcile(found)

    def membership_changed(self) -> None:
        """Reconcile the waiting instances. Nothing else here depends on the membership."""
        waiting, self._waiting = self._waiting, {}
        for name in waiting:
            if name in self._held:
                self._reconcile(self._held[name])

    def on_config(self, name: str) -> None:
        """Reconcile the connector after records about it were read."""
        instance = self._held.get(name)
        if instance is None:
            return
        self._reconcile(instance)
        entry = self._ctx.state.entry(name)
        if entry is None or instance.phase is not Phase.STARTED:
            return
        under_way = instance.generating is not Generating.IDLE
        if not under_way:
            self._statuses.take_account(name, entry.configured_at)  # its config is as it was
        if entry.inconsistent or (entry.task_count is None and not under_way):
            self._generate(instance)  # a repair; Java leaves it so for ever

    def on_removed(self, name: str) -> None:
        """Forget the failure and the shown state of a deleted connector. The log may already have a
        new one of the name: it must be tried, and if it is at rest, get a status of its own."""
        instance = self._held.get(name)
        if instance is not None:
            _forget_failure(instance)
            if instance.phase is Phase.ABSENT:
                self._word(instance, None)

    def restart(self, ticket: int, name: str) -> None:
        """Stop and start the connector. The ticket is resolved once task configs are published, or
        at once if the target state keeps it from running. Source: restartConnector."""
        instance = self._held[name]
        instance.tickets = (*instance.tickets, ticket)
        _forget_failure(instance)
        instance.restart = instance.phase in (Phase.STARTING, Phase.STARTED)
        self._reconcile(instance)

    def restart_planned(self, name: str, *, only_failed: bool) -> None:
        """Restart the connector as part of a restart by record, if it is here. Source:
        doRestartConnectorAndTasks."""
        instance = self._held.get(name)
        if instance is None or instance.revoked:
            return
        if only_failed and not instance.failed:
            if instance.phase in (Phase.ABSENT, Phase.STARTED):
                self._statuses.take_account(name)
            return
        _forget_failure(instance)
        self._start_anew(instance)

    def restart_failed(self, name: str, run: int) -> None:
        """Start the connector after the restart policy's delay, if it is still FAILED."""
        instance = self._held.get(name)
        if instance is None or instance.run != run or not instance.failed or instance.revoked:
            return
        instance.restarts += 1
        instance.failed, instance.error_text = False, ""
        self._start_anew(instance)

    def _start_anew(self, instance: Instance) -> None:
        instance.restart = instance.phase in (Phase.STARTING, Phase.STARTED)
        if instance.phase is Phase.ABSENT:
            self._show_restarting(instance)
        else:
            instance.show_restarting = True
        self._reconcile(instance)

    def is_restarting(self, name: str) -> bool:
        """Return whether the connector is being stopped in order to start again."""
        instance = self._held.get(name)
        return instance is not None and instance.show_restarting

    def _show_restarting(self, instance: Instance) -> None:
        instance.show_restarting = False
        self._show(instance, State.RESTARTING)

    def _show(
        self,
        instance: Instance,
        state: State,
        trace: str | None = None,
        *,
        tasks_known: bool = True,
    ) -> None:
        self._word(instance, state)
        self._statuses.write_connector(
            instance.name, state, trace, restarts=instance.restarts, tasks_known=tasks_known
        )

    def _word(self, instance: Instance, word: State | None) -> None:
        """Set the shown state. No other code changes it."""
        instance.shown = word
        self._ctx.news.changed(instance.name)

    @property
    def held(self) -> Iterator[str]:
        return iter(self._held)

    def holds_any(self, name: str) -> bool:
        """Return whether the connector is held, even if it is revoked and still stopping."""
        return name in self._held

    def holds(self, name: str) -> bool:
        instance = self._held.get(name)
        return instance is not None and not instance.revoked

    def outcome(self, name: str) -> Result | None:
        """Return how the config in the log has worked out here. Success: the connector has started
        and its task configs are in the log, or it is not to run. Failure: its start or
        `task_configs` raised an exception. None: it is undecided."""
        entry = self._ctx.state.entry(name)
        config = None if entry is None else entry.config
        if config is None or self._ctx.state.target_state(name) is not TargetState.STARTED:
            return Success()
        instance = self._held.get(name)
        if instance is None or instance.config != config:
            return None
        if instance.error_text:
            return Failure(ErrorKind.INTERNAL, instance.error_text)
        idle = instance.phase is Phase.STARTED and instance.generating is Generating.IDLE
        return Success() if idle else None

    def disagreements(self) -> Iterator[str]:
        """Yield, in words, where instances contradict the log or each other."""
        runs: dict[int, str] = {}
        for name, each in self._held.items():
            what = f"connector {name} is {each.phase.value}"
            if each.name != name:
                yield f"{each.name} is held as {name}"
            moving = each.phase in (Phase.STARTING, Phase.STOPPING)
            if (moving or each.generating is not Generating.IDLE) and name not in self._busy:
                yield f"{what}, which nobody would be told"
            if each.phase is Phase.ABSENT:
                if each.revoked:
                    yield f"{what} and revoked, and was not given up"
                if each.generating is not Generating.IDLE or each.restart:
                    yield f"{what}, and yet under way: {each.generating.value}"
                continue
            if runs.setdefault(each.run, name) != name or not 0 < each.run <= self._run_count:
                yield f"{what} with run {each.run}, which is not its own"
            if (each.generating is Generating.IDLE) is not (each.token == 0):
                yield f"{what}: {each.generating.value} under token {each.token}"
            if each.phase in (Phase.STARTING, Phase.STARTED):
                entry = self._ctx.state.entry(name)
                if each.revoked or each.failed or entry is None or entry.config != each.config:
                    yield f"{what} though revoked, failed, or not configured so"
                elif self._ctx.state.target_state(name) is not TargetState.STARTED:
                    yield f"{what}; wanted is {self._ctx.state.target_state(name)}"

    # -- from what it is to what it should be --

    def _reconcile(self, instance: Instance) -> None:
        entry = self._ctx.state.entry(instance.name)
        config = entry.config if entry is not None else None
        target = self._ctx.state.target_state(instance.name)
        # Without a run here, nobody knows whether the config has changed.
        changed = instance.config is not None and config != instance.config
        if target is TargetState.STOPPED or changed:
            _forget_failure(instance)
        wanted = (
            config is not None
            and not instance.revoked
            and not instance.failed
            and target is TargetState.STARTED
        )
        match instance.phase:
            case Phase.STARTING | Phase.STARTED:
                if not wanted or instance.restart or instance.config != config:
                    self._stop(instance)
            case Phase.STOPPING:
                pass
            case Phase.ABSENT:
                if instance.revoked:
                    self._drop(instance)
                elif config is not None and wanted:
                    self._start(instance, config)
                elif config is not None:
                    self._rest(instance, target)

    def _start(self, instance: Instance, config: Config) -> None:
        if not self._ctx.membership.stable:
            self._waiting[instance.name] = None
            return
        self._take_count(instance)
        self._run_count += 1
        instance.run = self._run_count
        instance.started_ms = None
        instance.config = config
        instance.phase = Phase.STARTING
        self._busy[instance.name] = None
        instance.error_text = ""
        instance.restart = False
        self._ctx.emit(StartConnector(instance.name, instance.run, config))

    def _take_count(self, instance: Instance) -> None:
        if not instance.counted:
            instance.restarts = self._statuses.restarts_of(instance.name)  # by the owner before us
            instance.counted = True

    def _stop(self, instance: Instance) -> None:
        instance.phase = Phase.STOPPING
        self._busy[instance.name] = None
        instance.restart = False
        self._forget_generating(instance)
        deadline_ms = self._ctx.settings.connector_stop_timeout_ms
        self._ctx.emit(StopConnector(instance.name, instance.run, deadline_ms))

    def _rest(self, instance: Instance, target: TargetState) -> None:
        """Write the status of a connector that is not to run, and resolve its restarts."""
        state = State.FAILED if instance.failed else _AT_REST.get(target, State.UNASSIGNED)
        self._take_count(instance)
        if not instance.failed and instance.shown is not state:
            self._show(instance, state)
        entry = self._ctx.state.entry(instance.name)
        if entry is not None:
            self._statuses.take_account(instance.name, entry.configured_at)
        self._resolve(instance, Success())

    def _drop(self, instance: Instance) -> None:
        del self._held[instance.name]
        if instance.shown in (State.PAUSED, State.STOPPED, State.FAILED, State.RESTARTING):
            # With the count of its restarts, which the next owner continues.
            self._statuses.write_connector(
                instance.name, State.UNASSIGNED, restarts=instance.restarts
            )
        self._statuses.connector_gone(instance.name)
        self._busy.pop(instance.name, None)
        self._ctx.news.went(instance.name)
        for ticket in instance.tickets:
            self._ctx.note(Unplaced(ticket))
        self._ctx.note(ConnectorReleased(instance.name))

    # -- what became of it --

    def on_started(self, name: str, run: int, version: str | None) -> None:
        instance = self._held.get(name)
        if instance is None or instance.run != run or instance.phase is not Phase.STARTING:
            return
        self.startups[0] += 1
        instance.phase = Phase.STARTED
        instance.started_ms = self._ctx.now_ms
        self._statuses.version_told(name, version)
        entry = self._ctx.state.entry(name)
        # After a stop, the last commit has no tasks, and those to come are not known yet.
        tasks_known = entry is None or entry.task_count != 0
        self._show(instance, State.RUNNING, tasks_known=tasks_known)
        self._generate(instance)

    def on_stopped(self, name: str, run: int) -> None:
        instance = self._held.get(name)
        if instance is None or instance.run != run or instance.phase is not Phase.STOPPING:
            return
        instance.phase = Phase.ABSENT
        target = self._ctx.state.target_state(name)
        configured = self._ctx.state.entry(name) is not None
        at_rest = configured and not instance.revoked and target in _AT_REST
        if not at_rest and instance.shown is not State.FAILED:
            self._show(instance, State.UNASSIGNED)
        if instance.show_restarting and configured and not instance.revoked:
            self._show_restarting(instance)
        self._reconcile(instance)

    def on_failed(self, failure: ConnectorFailed) -> None:
        instance = self._held.get(failure.connector)
        if (
            instance is None
            or instance.run != failure.run
            or instance.phase not in (Phase.STARTING, Phase.STARTED)
        ):
            return
        what = f"Failed to transition connector {instance.name} to state STARTED"
        self.startups[1] += instance.phase is Phase.STARTING
        if instance.phase is Phase.STARTED:
            what = f"Connector {instance.name} has failed"
        self._fail(instance, failure.trace or failure.reason, f"{what}: {failure.reason}")

    def _fail(self, instance: Instance, trace: str, error_text: str) -> None:
        instance.failed = True
        instance.error_text = error_text
        policy, now_ms = self._policy(instance), self._ctx.now_ms
        if instance.started_ms is not None and now_ms - instance.started_ms >= policy.quiet_ms:
            instance.restarts = 0
        delay_ms = policy.delay_ms(instance.restarts, trace)
        self._show(instance, State.FAILED, policy.announced(trace, instance.restarts, delay_ms))
        if delay_ms is not None:
            self._ctx.after(delay_ms, RestartFailedConnector(instance.name, instance.run))
        text = f"Failed to start connector: {instance.name}"
        self._resolve(instance, Failure(ErrorKind.INTERNAL, text))
        self._stop(instance)

    def _policy(self, instance: Instance) -> RestartPolicy:
        default = self._ctx.settings.restart
        return default if instance.config is None else restart_policy(instance.config, default)

    # -- task configs --

    def reconfigure(self, name: str, run: int) -> None:
        """Generate task configs because the connector asks for it. Ignored unless it is started."""
        instance = self._held.get(name)
        if instance is not None and instance.run == run and instance.phase is Phase.STARTED:
            self._generate(instance)

    def on_tasks_gone(self, name: str) -> None:
        """Generate task configs after a stop has ended the tasks. A connector that was resumed
        within the same read of the log was never stopped here, and does not start again."""
        instance = self._held.get(name)
        if instance is not None and instance.phase is Phase.STARTED:
            self._generate(instance)

    def _generate(self, instance: Instance) -> None:
        if instance.generating is not Generating.IDLE:
            instance.again = True
            return
        assert instance.config is not None
        instance.generating = Generating.ASKED
        self._busy[instance.name] = None
        instance.token = self._ctx.token()
        self._ctx.emit(
            GenerateTaskConfigs(
                instance.token, instance.name, instance.run, tasks_max(instance.config)
            )
        )

    def on_generated(self, answer: TaskConfigsGenerated) -> None:
        instance = self._generating(answer.connector, answer.token, Generating.ASKED)
        if instance is None or instance.config is None:
            return
        if answer.error is not None:
            self._gave_none(instance, answer.error, answer.trace)
            return
        found, config = answer.resolved, instance.config
        limit = found.tasks_max if found is not None else tasks_max(config)
        enforced = found.tasks_max_enforced if found is not None else tasks_max_enforced(config)
        if len(answer.configs) > limit and enforced:
            text = too_many(instance.name, len(answer.configs), limit)
            self._fail(instance, text, text)
            return
        instance.error_text = ""
        if instance.shown is State.FAILED:
            self._show(instance, State.RUNNING)
        configs = tuple(with_topics(config, instance.config) for config in answer.configs)
        entry = self._ctx.state.entry(instance.name)
        digest = "" if found is None else found.digest
        renewed = entry is not None and _values_changed(instance, entry, digest)
        if entry is None or not (renewed or task_configs_changed(entry, configs)):
            self._generated(instance)
            return
        instance.generating = Generating.PUBLISHING
        instance.published = digest, entry.commit_offset
        instead_of = entry.commit_offset if renewed else None
        self._ctx.note(
            Ask(
                FromConnector(instance.name, instance.token),
                PutTaskConfigs(instance.name, configs, config_digest(config), instead_of),
            )
        )

    def _gave_none(self, instance: Instance, error: str, trace: str) -> None:
        """Show the connector as FAILED and ask it again, for ever, as Java does. Its tasks go on.
        In Java it stays RUNNING, and nobody learns why it has no tasks."""
        text = f"Connector {instance.name} gave no task configs: {error}"
        if instance.shown is not State.FAILED or instance.error_text != text:
            self._show(instance, State.FAILED, f"{text}\n{trace}".rstrip())
        instance.error_text = text
        self._try_later(instance)

    def on_published(self, origin: FromConnector, result: Result) -> None:
        instance = self._generating(origin.connector, origin.token, Generating.PUBLISHING)
        if instance is None:
            return
        if isinstance(result, Success):
            self._generated(instance)
        elif result.kind is ErrorKind.BAD_REQUEST:
            self._gave_none(instance, result.message, "")
        else:
            self._try_later(instance)

    def generate_again(self, name: str, token: int) -> None:
        instance = self._generating(name, token, Generating.BACKING_OFF)
        if instance is not None:
            instance.generating = Generating.IDLE
            self._generate(instance)

    def _generating(self, name: str, token: int, expected: Generating) -> Instance | None:
        """Return the instance that awaits this answer; None: the answer is stale."""
        instance = self._held.get(name)
        if instance is None or instance.token != token or instance.generating is not expected:
            return None
        return instance

    def _generated(self, instance: Instance) -> None:
        again = instance.again
        self._forget_generating(instance)
        instance.failures = 0
        entry = self._ctx.state.entry(instance.name)
        # A commit that is yet to be read is taken account of when it is read.
        if entry is not None and (instance.published or (0, -1))[1] != entry.commit_offset:
            self._statuses.take_account(instance.name, entry.configured_at)
        self._resolve(instance, Success())
        if again:
            self._generate(instance)

    def _try_later(self, instance: Instance) -> None:
        """Generate task configs again after a delay, for ever, as Java does. Restarts are answered
        after the first try."""
        self._resolve(instance, Success())
        instance.failures += 1
        instance.generating = Generating.BACKING_OFF
        self._ctx.after(
            retry_delay_ms(instance.failures), GenerateAgain(instance.name, instance.token)
        )

    def _forget_generating(self, instance: Instance) -> None:
        instance.generating = Generating.IDLE
        instance.token = 0
        instance.again = False

    def _resolve(self, instance: Instance, result: Result) -> None:
        for ticket in instance.tickets:
            self._ctx.note(Restarted(ticket, result))
        instance.tickets = ()

    # -- views --

    def view(self, changed: Iterable[str] | None = None) -> Mapping[str, State]:
        """Return the states of all connectors held, or of `changed`."""
        shown = sorted(self._held if changed is None else changed)
        return {name: self._held[name].shown or State.UNASSIGNED for name in shown}

    @property
    def pending(self) -> list[str]:
        words: list[str] = []
        for name in sorted(self._busy):
            instance = self._held[name]
            if instance.phase in (Phase.STARTING, Phase.STOPPING):
                words.append(f"{instance.phase.value} connector {name}")
            elif instance.generating is not Generating.IDLE:
                words.append(f"task configs of {name}: {instance.generating.value}")
            else:
                del self._busy[name]
        return words


def _values_changed(instance: Instance, entry: ConnectorEntry, digest: str) -> bool:
    """Return whether the config's references have other values than those that the task configs in
    force were made of. A worker that has just got the connector cannot tell, and takes the present
    values. Source: `AbstractHerder.taskConfigsChanged`."""
    if instance.published is not None and instance.published[1] != entry.commit_offset:
        # What was published is in force, whether or not its answer came.
        instance.applied_digest, instance.published = instance.published[0], None
    if instance.applied_digest is None:
        instance.applied_digest = digest
    return instance.applied_digest != digest


def _forget_failure(instance: Instance) -> None:
    """Forget the failure, and begin the restart policy's count anew."""
    instance.failed, instance.error_text = False, ""
    instance.restarts, instance.counted = 0, True
