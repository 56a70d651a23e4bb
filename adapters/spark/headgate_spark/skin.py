"""The outermost function of the code on executors. It travels by value, so it needs nothing of
Headgate there. So it can report that Headgate is missing there, or has another version."""

import functools
import importlib.metadata
import re
from collections.abc import Callable, Iterator
from typing import Any


class OtherVersionError(Exception):
    """Executors do not have the worker's version of Headgate."""


_REFUSAL = re.compile(r"headgate of another version: (.*)")


def on_executors(function: Callable[..., Any], *arguments: Any) -> Callable[[Any], Any]:
    """Return `function` of `mapInArrow` with its first arguments bound. An executor looks it up by
    its name if it has the same version of Headgate as this process."""
    _travel_by_value()
    name = f"{function.__module__}:{function.__qualname__}"
    version = importlib.metadata.version("headgate")
    return functools.partial(run_checked, version, name, arguments)


def run_checked(
    wanted: str, name: str, arguments: tuple[Any, ...], batches: Iterator[Any]
) -> Iterator[Any]:
    """Run the function called `name`.

    Raises:
        RuntimeError: this Python has no Headgate, or not the version that is `wanted`.
    """
    # Imported here, because only the function travels by value, without its module's imports.
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
    """Return the message of `run_checked` on an executor, if that ended a job."""
    found = _REFUSAL.search(str(error))
    return found[1] if found is not None else None


@functools.cache
def _travel_by_value() -> None:
    import sys

    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
