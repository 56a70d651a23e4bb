from headgate_runtime.testing.compare import ConformanceError as ConformanceError
from headgate_runtime.testing.contexts import FakeConnectorContext as FakeConnectorContext
from headgate_runtime.testing.contexts import FakeSinkContext as FakeSinkContext
from headgate_runtime.testing.contexts import FakeSourceContext as FakeSourceContext
from headgate_runtime.testing.contexts import FakeTransaction as FakeTransaction
from headgate_runtime.testing.job import ConfigRefusedError as ConfigRefusedError
from headgate_runtime.testing.messages import Message as Message
from headgate_runtime.testing.messages import Raw as Raw
from headgate_runtime.testing.planned_sinks import (
    PlannedSinkConformance as PlannedSinkConformance,
)
from headgate_runtime.testing.runs import SinkRun as SinkRun
from headgate_runtime.testing.runs import SourceRun as SourceRun
from headgate_runtime.testing.runs import run_sink as run_sink
from headgate_runtime.testing.runs import run_source as run_source
from headgate_runtime.testing.sinks import SinkConformance as SinkConformance
from headgate_runtime.testing.sources import SourceConformance as SourceConformance
from headgate_runtime.testing.world import World as World

__all__ = [
    "ConfigRefusedError",
    "ConformanceError",
    "FakeConnectorContext",
    "FakeSinkContext",
    "FakeSourceContext",
    "FakeTransaction",
    "Message",
    "PlannedSinkConformance",
    "Raw",
    "SinkConformance",
    "SinkRun",
    "SourceConformance",
    "SourceRun",
    "World",
    "run_sink",
    "run_source",
]
