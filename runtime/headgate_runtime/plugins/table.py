"""Descriptions of the installed connector classes, without loading them into this process.

A worker tells its group which classes it has, so it must try to import each of them. The modules of
all that come with Headgate take 60 MiB, with pyarrow, delta-rs and Iceberg, and few workers run all
of them. So another process imports them and reports what it has found. A worker imports a class
when it is used.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate_runtime.plugins.find import PluginError, available, connector_kind, find_connector

log = logging.getLogger(__name__)

LOOK_S: Final = 60.0
"""How long the process may take, in seconds. After that the classes are imported here."""
_CODE: Final = """
import json, os, sys
told = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what a module prints is not what is told
sys.path[:] = json.loads(sys.stdin.readline())
from headgate_runtime.plugins import table
json.dump(table.told(), told)
told.close()
os._exit(0)  # threads of a library may not want to end
"""

_known: dict[object, "dict[str, Described]"] = {}
"""Earlier results of this process, by the classes and the path for which they were found."""


@dataclass(frozen=True, slots=True)
class Described:
    """A class, or the reason why it is not usable."""

    name: str = ""
    kind: str = ""
    version: str | None = None
    error: str = ""


def described() -> Mapping[str, Described]:
    """Return all classes that are announced, by the names of `available`."""
    names = available()
    key = (tuple(names.items()), tuple(sys.path))
    if key not in _known:
        modules = {target.partition(":")[0] for target in names.values()}
        found = None if modules <= sys.modules.keys() else _from_process()
        _known[key] = {name: Described(**each) for name, each in (found or told()).items()}
    return _known[key]


def told() -> dict[str, dict[str, Any]]:
    """Return `described` as plain data. Imports every class."""
    found: dict[str, dict[str, Any]] = {}
    for name in available():
        try:
            connector = find_connector(name)
        except PluginError as error:
            found[name] = {"error": str(error)}
            continue
        kind = connector_kind(connector)
        version = connector.VERSION
        found[name] = {"name": connector.__name__, "kind": kind, "version": version}
    return found


def _from_process() -> dict[str, dict[str, Any]] | None:
    """Return the result of `told` in another process. None: it gave no usable result."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CODE],
            input=json.dumps(sys.path).encode() + b"\n",
            stdout=subprocess.PIPE,
            timeout=LOOK_S,
            check=True,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
        found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        log.warning(
            "connector classes are imported by this process: the one that was to look at them %s",
            _why(error),
        )
        return None
    return found


def _why(error: Exception) -> str:
    """Return the reason without the program that the process was given, which the error's own text
    repeats."""
    match error:
        case subprocess.TimeoutExpired():
            return f"took longer than {error.timeout:g} s"
        case subprocess.CalledProcessError():
            return f"ended with code {error.returncode}"
        case OSError():
            return f"could not be started: {error}"
        case _:
            return "told nothing that can be read"
