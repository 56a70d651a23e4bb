"""A task body in this process whose log is a real broker."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from support.kafka.world import KafkaWorld
from support.task.body_bench import BodyBench

from headgate_kafka.task_transport import open_task_transport


def bench(
    world: KafkaWorld,
    folder: Path,
    task: Any,
    config: Mapping[str, str] = MappingProxyType({}),
    **more: Any,
) -> BodyBench:
    def opened(spec: Any) -> Any:
        return open_task_transport(
            world.properties,
            spec.connector_config,
            connector=spec.task.connector,
            kind=spec.kind.value,
            exactly_once=spec.exactly_once,
        )

    return BodyBench(folder, task, config, open_transport=opened, **more)
