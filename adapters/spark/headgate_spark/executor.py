"""The code on executors for a resident task: a thin layer around its body.

It is separate from the launcher, because executors import this module, and it imports nothing of
Spark's client.
"""

import importlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

RESULT_SCHEMA = "status string, error string"


def resolve(name: str) -> Callable[..., Any]:
    """Return the function that ``module:function`` names."""
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(f"{name!r} names no function, expected module:function")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def run_resident(body: str, argument: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Run the body and yield one row, as a function of `mapInArrow`. Never raises, since Spark
    would then start the task again by itself."""
    import pyarrow as pa

    for _ in batches:
        pass
    status, error = _run(body, argument)
    yield pa.RecordBatch.from_pydict(
        {"status": pa.array([status], pa.string()), "error": pa.array([error], pa.string())}
    )


def _run(body: str, argument: str) -> tuple[str, str | None]:
    refused = refused_attempt()
    if refused is not None:
        return "refused", refused
    try:
        return str(resolve(body)(argument)), None
    except BaseException as error:  # the outermost edge of the task: it must not raise
        return "failed", "".join(traceback.format_exception(error)).rstrip()


def refused_attempt() -> str | None:
    """Return why this attempt must not run, or None for Spark's first attempt.

    A second attempt would initialise a producer under the same transactional id. That would fence
    the rightful successor, which the control plane has started meanwhile.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    number = 0 if context is None else context.attemptNumber()
    if number == 0:
        return None
    return (
        f"attempt {number} of Spark's own is refused: the first was lost, and only the control "
        "plane starts tasks again"
    )
