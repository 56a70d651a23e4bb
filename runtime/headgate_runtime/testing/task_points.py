"""A connector's task class with points before and after its calls."""

from collections.abc import Callable
from typing import Any

from headgate.connector.api import PlannedSinkTask, SinkTask, SourceTask
from headgate_runtime.tasks.tools import TaskClass
from headgate_runtime.testing.file_points import file_points
from headgate_runtime.testing.points import Points
from headgate_runtime.testing.world import World

SOURCE_CALLS = ("start", "poll")
SINK_CALLS = ("start", "open", "put", "pre_commit")
PLANNED_CALLS = ("start", "run_batch")


def with_points(task: TaskClass, points: Points, world: World) -> TaskClass:
    """Return a subclass of `task`, the same except for its points.

    `commit` and `commit_record` have no points, since a task without them is polled in another
    order.
    """
    if issubclass(task, PlannedSinkTask):
        return _planned(task, points, world)
    names = SOURCE_CALLS if issubclass(task, SourceTask) else SINK_CALLS
    methods = {name: _pointed(getattr(task, name), name, points) for name in names}
    endings = {"stop": _ended(getattr(task, "stop"), points, world)}  # noqa: B009
    if issubclass(task, SinkTask):
        endings["close"] = _ended(getattr(task, "close"), points, None)  # noqa: B009
    body: dict[str, Any] = {**methods, **endings, "__module__": task.__module__}
    return type(task.__name__, (task,), body)


def _planned(task: type[PlannedSinkTask], points: Points, world: World) -> TaskClass:
    """Return a class with points for a task of planned batches, which does everything in
    `run_batch`. Points are also its questions to the context on the way to a commit, and its
    changes of file names."""
    methods = {
        name: _pointed(_with_file_points(getattr(task, name), points), name, points)
        for name in PLANNED_CALLS
    }
    start = methods["start"]

    def started(self: Any, *given: Any) -> Any:
        # No group assigns partitions to it, so it makes progress from here on.
        points.got_on += 1
        return start(self, *given)

    def told(self: Any) -> Any:
        return self.__dict__["context"]

    def tell(self: Any, context: Any) -> None:
        self.__dict__["context"] = _Asked(context, points)

    body: dict[str, Any] = {
        **methods,
        "start": started,
        "stop": _ended(getattr(task, "stop"), points, world),  # noqa: B009
        "context": property(told, tell),
        "__module__": task.__module__,
    }
    return type(task.__name__, (task,), body)


class _Asked:
    """The context of a task of planned batches, with points."""

    def __init__(self, context: Any, points: Points) -> None:
        self._context = context
        self._points = points

    @property
    def stopping(self) -> bool:
        self._points.pass_by("before it asks whether to stop")
        return bool(self._context.stopping)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def _with_file_points(call: Callable[..., Any], points: Points) -> Callable[..., Any]:
    def pointed(self: Any, *given: Any) -> Any:
        with file_points(points):
            return call(self, *given)

    return pointed


def _pointed(call: Callable[..., Any], name: str, points: Points) -> Callable[..., Any]:
    def pointed(self: Any, *given: Any) -> Any:
        points.pass_by(f"before {name}()")
        result = call(self, *given)
        points.pass_by(f"after {name}()")
        return result

    pointed.__name__ = name
    return pointed


def _ended(call: Callable[..., Any], points: Points, world: World | None) -> Callable[..., Any]:
    """Wrap `stop` or `close`: a task that was killed is not called any more."""

    def ended(self: Any, *given: Any) -> Any:
        if not points.dead:
            return call(self, *given)
        if world is not None:
            world.killed.append(lambda: call(self, *given))
        return None

    return ended
