"""Which runner runs what."""

from collections.abc import Callable, Mapping

from headgate.connector.api import Connector, PlannedSinkTask
from headgate.ports import Launcher, Reporter, Runner
from headgate_runtime.tasks.thread_runner import ThreadRunner
from headgate_runtime.tasks.tools import BodyTools

NAMES = ("spark", "process", "thread")


def runner_refusal(connector_class: type[Connector], runner_name: str) -> str | None:
    """Why tasks of this connector cannot run there, in words for its user; None: they can."""
    needed = connector_class.REQUIRES_RUNNER
    if needed is not None and needed != runner_name:
        return (
            f"{connector_class.__name__} needs the task runner {needed!r}, but the worker's "
            f"`headgate.task.runner` is {runner_name!r}"
        )
    task = getattr(connector_class, "TASK", None)
    planned = isinstance(task, type) and issubclass(task, PlannedSinkTask)
    if runner_name == "thread" and planned:
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
    host: str = "127.0.0.1",
) -> Runner:
    """The task runner called `name`: "thread", "process" or "spark".

    Args:
        settings: worker settings as text; `session.timeout.ms` sets the lifeline's limit.
        alive: beats go to the tasks only while it returns True (the herder is being served).
        tools: for the thread runner; other bodies find their own.
        spark_launcher: needed for "spark"; sinks of planned batches go to processes all the same.
        host: address that the lifeline listens on.

    Raises:
        ValueError: no such runner, or "spark" without a launcher.
    """
    limit_ms = int(settings.get("session.timeout.ms", "10000")) // 2
    if name == "thread":
        return ThreadRunner(report, silence_limit_ms=limit_ms, tools=tools, alive=alive)
    raise ValueError(f"task runner {name!r}, expected one of {', '.join(NAMES)}")
