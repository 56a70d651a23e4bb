"""The outermost function of what runs on executors. It travels by value, so it needs nothing of
Headgate there, and can say so when Headgate is missing or another one."""

import functools
import importlib.metadata
from collections.abc import Callable, Iterator
from typing import Any

REFUSED = "headgate of another version"
"""What errors begin with that `run_checked` raises."""


def on_executors(function: Callable[..., Any], *arguments: Any) -> Callable[[Any], Any]:
    """`function` of `mapInArrow`, with its first arguments; an executor looks it up by its name
    when it has the same version of Headgate as this process."""
    _travel_by_value()
    name = f"{function.__module__}:{function.__qualname__}"
    version = importlib.metadata.version("headgate")
    return functools.partial(run_checked, version, name, arguments)


def run_checked(
    wanted: str, name: str, arguments: tuple[Any, ...], batches: Iterator[Any]
) -> Iterator[Any]:
    """Run the function called `name`.

    Raises:
        RuntimeError: this Python has no Headgate, or not the one that is `wanted`.
    """
    # Imported here: by value travels the function, not what its module has imported.
    import importlib
    import importlib.metadata
    import socket
    import sys

    try:
        found = importlib.metadata.version("headgate")
    except importlib.metadata.PackageNotFoundError:
        found = ""
    if found != wanted:
        has = f"has Headgate {found}" if found else "has no Headgate"
        raise RuntimeError(
            f"headgate of another version: the executor on {socket.gethostname()} "
            f"({sys.executable}) {has}, and the worker has {wanted}: install headgate=={wanted} "
            "there"
        )
    module, _, function = name.partition(":")
    yield from getattr(importlib.import_module(module), function)(*arguments, batches)


@functools.cache
def _travel_by_value() -> None:
    import sys

    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
