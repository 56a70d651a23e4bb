"""The choice of the runner for each task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.connector.api import Connector, PlannedSinkTask
from headgate.ports import Launcher, Reporter, Runner
from headgate.task.messages import TaskCommand, TaskEnded, TaskOutcome, TaskReleased, TaskSpec
from headgate_runtime.config.settings import TASKS_PER_PROCESS
from headgate_runtime.plugins.find import PluginError
from headgate_runtime.tasks.launchers import ProcessLauncher
from headgate_runtime.tasks.launching import START_LIMIT_MS
from headgate_runtime.tasks.packed_runner import PackedRunner
from headgate_runtime.tasks.runners import LaunchedRunner
from headgate_runtime.tasks.server import LOOPBACK, LifelineServer
from headgate_runtime.tasks.thread_runner import ThreadRunner
from headgate_runtime.tasks.tools import BodyTools, PluginTools

SPARK_START_LIMIT_MS = 300_000
SPARK_SPARE = 1
"""Slots of Spark that a worker has for tasks that may have crashed their process, beyond those that
its tasks fill. `headgate_spark.slots.slots_wanted` counts them."""
NAMES = ("spark", "process", "thread")
BODY = "headgate_runtime.tasks.main:run"
"""Importable name of the body, for launchers. It takes the argument, and returns how it ended."""


def runner_refusal(connector_class: type[Connector], runner_name: str) -> str | None:
    """Return why tasks of this connector cannot run there, for its user. Return None if they
    can."""
    needed = connector_class.REQUIRES_RUNNER
    if needed is not None and needed != runner_name:
        return (
            f"{connector_class.__name__} needs the task runner {needed!r}, but the worker's "
            f"`headgate.task.runner` is {runner_name!r}"
        )
    task = getattr(connector_class, "TASK", None)
    if runner_name == "thread" and is_planned(task):
        return (
            f"{connector_class.__name__} is an exactly-once sink: a thread cannot be killed at its "
            "deadline and might write on beside its successor; use the task runner 'process' or "
            "'spark'"
        )
    return None


def make_runner(
    name: str,
    settings: Mapping[str, str],
    report: Reporter,
    *,
    tools: BodyTools | None = None,
    alive: Callable[[], bool] | None = None,
    spark_launcher: Launcher | None = None,
    host: str = LOOPBACK,
    start_limit_ms: int | None = None,
    preload: Sequence[str] = (),
) -> Runner:
    """Return the task runner called `name`: "thread", "process" or "spark".

    Args:
        settings: worker settings as text. `session.timeout.ms` sets the lifeline's limit, and
            `headgate.tasks.per.process` how many tasks share a process.
        tools: for the thread runner, and to find task classes. Other bodies find their own.
        alive: beats are sent to the tasks only while it returns True, that is, while the herder is
            served.
        spark_launcher: needed for "spark". Sinks of planned batches still go to processes.
        host: address of this machine that Spark's executors reach, where the lifelines of tasks
            there are listened for. Processes of this machine use the loopback address.
        start_limit_ms: time for a launched body to connect. By default it is longer on Spark, where
            a body waits for its slot.
        preload: modules that all bodies need, loaded once for those that are processes here.

    Raises:
        ValueError: no such runner, or "spark" without a launcher.
    """
    limit_ms = int(settings.get("session.timeout.ms", "10000")) // 2
    if name == "thread":
        threads = ThreadRunner(report, silence_limit_ms=limit_ms, tools=tools, alive=alive)
        return ChoosingRunner(None, threads, report, tools or PluginTools())
    if name not in NAMES:
        raise ValueError(f"task runner {name!r}, expected one of {', '.join(NAMES)}")
    if name == "spark" and spark_launcher is None:
        raise ValueError("task runner 'spark' needs a launcher of Spark's")
    around = _Around(report, limit_ms, start_limit_ms, alive)
    servers = [LifelineServer(limit_ms, LOOPBACK)]
    room = int(settings.get(TASKS_PER_PROCESS, "1"))
    launcher = ProcessLauncher(preload)
    if name == "process":
        launcher.prepare()
    processes = others = around.one_each(launcher, START_LIMIT_MS, servers[0])
    if name == "spark" and spark_launcher is not None:
        if host != LOOPBACK:
            servers.append(LifelineServer(limit_ms, host))
        limit = SPARK_START_LIMIT_MS
        others = around.several_each(spark_launcher, limit, servers[-1], room, SPARK_SPARE)
    elif room > 1:
        others = around.several_each(launcher, START_LIMIT_MS, servers[0], room)
    return ChoosingRunner(processes, others, report, tools or PluginTools(), servers)


@dataclass(frozen=True, slots=True)
class _Around:
    """What the runners around launchers have in common."""

    report: Reporter
    silence_limit_ms: int
    start_limit_ms: int | None
    alive: Callable[[], bool] | None

    def one_each(self, launcher: Launcher, start_limit_ms: int, server: LifelineServer) -> Runner:
        return LaunchedRunner(
            launcher,
            self.report,
            server,
            silence_limit_ms=self.silence_limit_ms,
            start_limit_ms=self.start_limit_ms or start_limit_ms,
            alive=self.alive,
        )

    def several_each(
        self,
        launcher: Launcher,
        start_limit_ms: int,
        server: LifelineServer,
        room: int,
        spare: int | None = None,
    ) -> Runner:
        """Return a runner whose launched processes each take `room` tasks. For `spare` see
        `PackedRunner`."""
        if room == 1:
            return self.one_each(launcher, start_limit_ms, server)
        return PackedRunner(
            launcher,
            self.report,
            server,
            room,
            silence_limit_ms=self.silence_limit_ms,
            start_limit_ms=self.start_limit_ms or start_limit_ms,
            spare=spare,
            alive=self.alive,
        )


class ChoosingRunner:
    """A runner that chooses between two. Sinks of planned batches, and sources that ask for it, get
    processes of this machine, each one of its own. All other tasks go to `others`."""

    def __init__(
        self,
        processes: Runner | None,
        others: Runner,
        report: Reporter,
        tools: BodyTools,
        servers: Sequence[LifelineServer] = (),
    ) -> None:
        """Without `processes`, refuse sinks of planned batches."""
        self._processes = processes
        self._others = others
        self._report = report
        self._tools = tools
        self._servers = servers

    def start(self, spec: TaskSpec) -> None:
        task = self._task_class(spec)
        planned = is_planned(task)
        if self._processes is None and planned:
            reason = (
                "an exactly-once sink cannot be run by a thread, which cannot be killed: use the "
                "task runner process or spark"
            )
            self._report(spec.run, TaskEnded(TaskOutcome.FAILED, reason))
            self._report(spec.run, TaskReleased())
            return
        beside = planned or getattr(task, "IN_WORKER_PROCESS", False)
        if beside and self._processes is not None:
            self._processes.start(spec)
        else:
            self._others.start(spec)

    def _task_class(self, spec: TaskSpec) -> object:
        try:
            return self._tools.task_class(spec)
        except PluginError:
            return None  # the body reports the error

    def send(self, run: str, command: TaskCommand) -> None:
        for runner in self._each():
            runner.send(run, command)

    def stop(self, run: str, grace_ms: int) -> None:
        for runner in self._each():
            runner.stop(run, grace_ms)

    def close(self) -> None:
        for runner in self._each():
            runner.close()
        for server in self._servers:
            server.close()

    def _each(self) -> list[Runner]:
        if self._processes is None or self._processes is self._others:
            return [self._others]
        return [self._processes, self._others]


def is_planned(task: object) -> bool:
    """Return whether this is a class of tasks that plan whole batches."""
    return isinstance(task, type) and issubclass(task, PlannedSinkTask)
