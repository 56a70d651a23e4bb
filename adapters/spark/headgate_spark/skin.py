"""The outermost function of what runs on executors. It travels by value, so it needs nothing of
Headgate there, and can say so when Headgate is missing or another one."""

import functools
import importlib.metadata
import re
from collections.abc import Callable, Iterator
from typing import Any


class OtherVersionError(Exception):
    """Executors have not the Headgate of the worker."""


_REFUSAL = re.compile(r"headgate of another version: (.*)")


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

    loaded = sys.modules.get("headgate_spark.loaded_version")  # the daemon's, if it has loaded it
    try:
        found = loaded.VERSION if loaded else importlib.metadata.version("headgate")
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


def refusal(error: Exception) -> str | None:
    """What `run_checked` has raised on an executor, if a job has ended by that."""
    found = _REFUSAL.search(str(error))
    return found[1] if found is not None else None


@functools.cache
def _travel_by_value() -> None:
    import sys

    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
