"""A process that alters the offsets of a SparkFileSink as a worker does, and that a test kills on
the way.

``python offsets_process.py DATA CONFIG OFFSETS``: DATA is the folder of an embedded log. CONFIG is
the connector's config and OFFSETS the change, both as JSON: ``[[topic, partition, offset], ...]``
or ``null``. The process prints ``ready``, waits for a line, alters the offsets, and prints the
outcome.
"""

import json
import sys

from headgate.herder.messages import AlterConnectorOffsets
from headgate.task.messages import TaskKind
from headgate_embedded import transport_settings
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.plugins.find import find_connector
from headgate_runtime.worker.connector_offsets import OFFSET, PARTITION, TOPIC, ConnectorOffsets

CONNECTOR = "lake"


def main(data: str, config: str, offsets: str) -> None:
    plain = json.loads(config)
    find_connector(plain["connector.class"])  # its modules are loaded by then
    given = json.loads(offsets)
    changes = None
    if given is not None:
        changes = tuple(
            ({TOPIC: topic, PARTITION: partition}, {OFFSET: offset})
            for topic, partition, offset in given
        )
    worker = ConnectorOffsets(
        transport_settings(data), WorkerSettings.parse({}), lambda *_asked: True
    )
    effect = AlterConnectorOffsets(1, CONNECTOR, plain, TaskKind.SINK, changes, None, "m", 1, 1)
    print("ready", flush=True)
    sys.stdin.readline()
    worker.expect(effect.token)
    failure = worker.alter(effect).failure
    print("altered" if failure is None else failure.message, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
