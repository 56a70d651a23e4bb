"""A connector's task class with points before and after its calls."""

from collections.abc import Callable
from typing import Any

from headgate.connector.api import SinkTask, SourceTask
from headgate_runtime.tasks.tools import TaskClass
from headgate_runtime.testing.points import Points
from headgate_runtime.testing.world import World

SOURCE_CALLS = ("start", "poll")
SINK_CALLS = ("start", "open", "put", "pre_commit")


def with_points(task: TaskClass, points: Points, world: World) -> TaskClass:
    """A subclass of `task`, the same but for its points.

    `commit` and `commit_record` have none, since a task without them is polled in another order.
    """
    names = SOURCE_CALLS if issubclass(task, SourceTask) else SINK_CALLS
    methods = {name: _pointed(getattr(task, name), name, points) for name in names}
    endings = {"stop": _ended(getattr(task, "stop"), points, world)}  # noqa: B009
    if issubclass(task, SinkTask):
        endings["close"] = _ended(getattr(task, "close"), points, None)  # noqa: B009
    body: dict[str, Any] = {**methods, **endings, "__module__": task.__module__}
    return type(task.__name__, (task,), body)


def _pointed(call: Callable[..., Any], name: str, points: Points) -> Callable[..., Any]:
    def pointed(self: Any, *given: Any) -> Any:
        points.pass_by(f"before {name}()")
        result = call(self, *given)
        points.pass_by(f"after {name}()")
        return result

    pointed.__name__ = name
    return pointed


def _ended(call: Callable[..., Any], points: Points, world: World | None) -> Callable[..., Any]:
    """`stop` and `close`: a task that was killed is not called any more."""

    def ended(self: Any, *given: Any) -> Any:
        if not points.dead:
            return call(self, *given)
        if world is not None:
            world.killed.append(lambda: call(self, *given))
        return None

    return ended
