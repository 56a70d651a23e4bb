"""Connector classes by name. They are found through entry points of the group
``headgate.connectors``.

A class may be named as Connect allows: full name, simple name, or simple name without the suffix
``Connector``. It may also be named by its entry point, or as ``package.module:Class`` if no
distribution announces it. In the last case its source is looked at before it is imported: see
`plugins.look`.
"""

import difflib
import inspect
from functools import lru_cache
from importlib.metadata import entry_points

from headgate.connector.api import Connector, SinkConnector, SourceConnector
from headgate_runtime.command.extras import missing_extra
from headgate_runtime.plugins.importing import NotImportedError, import_class
from headgate_runtime.plugins.look import objection

GROUP = "headgate.connectors"


class PluginError(Exception):
    """A connector class is not usable. The message says why and suggests the nearest names."""


@lru_cache(maxsize=1)
def available() -> dict[str, str]:
    """Return name -> ``module:Class`` of every connector that an installed distribution announces,
    sorted by name."""
    return {point.name: point.value for point in sorted(entry_points(group=GROUP))}


def find_connector(name: str, *, looked_at: bool = False) -> type[Connector]:
    """Return the class that `name` (a value of ``connector.class``) means.

    Args:
        looked_at: a worker has found it before, so its module may be imported.

    Raises:
        PluginError: there is none, it may not or cannot be imported, or it is no connector.
    """
    table = available()
    target = table.get(name) or _by_simple_name(name, table)
    if target is None and ":" in name:
        target = name
        reason = None if looked_at else objection(target, Connector)
        if reason is not None:
            raise PluginError(f"connector.class {name} cannot be used: {reason}")
    if target is None:
        raise PluginError(_unknown(name, table))
    return _load(name, target)


def connector_kind(connector: type[Connector]) -> str:
    """ "source" or "sink", as the REST API says it."""
    if issubclass(connector, SourceConnector):
        return "source"
    if issubclass(connector, SinkConnector):
        return "sink"
    return "unknown"


def _by_simple_name(name: str, table: dict[str, str]) -> str | None:
    """Return the class that a shorter spelling of Connect's means, if it is announced by its full
    name."""
    for known, target in table.items():
        simple = known.rpartition(".")[2]
        if name in (simple, simple.removesuffix("Connector"), target.rpartition(":")[2]):
            return target
    return None


def _unknown(name: str, table: dict[str, str]) -> str:
    near = difflib.get_close_matches(name, table, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return (
        f"Failed to find any class that implements Connector and which name matches {name}.{hint} "
        f"Available connectors are: {', '.join(table)}"
    )


def _load(name: str, target: str) -> type[Connector]:
    module = target.partition(":")[0]
    try:
        found = import_class(target)
    except NotImportedError as error:
        raised = error.__cause__
        why = (missing_extra(raised, module) if isinstance(raised, ImportError) else None) or error
        raise PluginError(f"{name} is {target}, which cannot be imported: {why}") from raised
    if not (inspect.isclass(found) and issubclass(found, Connector)):
        raise PluginError(f"{name} is {target}, which is no subclass of headgate's Connector")
    if not isinstance(found.VERSION, str):
        raise PluginError(f"{name} has the VERSION {found.VERSION!r}, expected a text, in quotes")
    return found
