"""Tools for authors of connectors to test with: contexts, runs in memory, and conformance suites.

See docs/build/testing.md. The names below are public and stay. Their code is in the runtime, since
it runs the task bodies that ship; this package only gives it its public name. The suites need
pytest, which Headgate does not install.
"""

from importlib import import_module
from typing import Any, Final

_HOMES: Final = {
    "compare": "ConformanceError",
    "contexts": "FakeConnectorContext FakeSinkContext FakeSourceContext FakeTransaction",
    "job": "ConfigRefusedError",
    "messages": "Message Raw",
    "planned_sinks": "PlannedSinkConformance",
    "runs": "SinkRun SourceRun run_sink run_source",
    "sinks": "SinkConformance",
    "sources": "SourceConformance",
    "world": "World",
}
"""Public names of each module of `headgate_runtime.testing`, separated by spaces."""
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names.split()}
globals()["__all__"] = sorted(_HOME_OF)  # hidden from checkers, which look for the names here


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used. Type checkers read the stub beside this file."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"headgate_runtime.testing.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
