"""Replays a config topic as a worker does, without the rest of the worker.

``python -m bench.kafka_replay BROKERS TOPIC`` prints the seconds it took, the CPU seconds of the
process for it, and the number of tasks in the resulting state. Records are fetched from the broker,
decoded with orjson, and folded.
"""

import sys
import time

import orjson

from headgate.topics import config_records as records
from headgate.topics.config_reducer import REPLAY_BATCH, fold
from headgate.topics.config_state import ConfigState
from headgate_kafka import open_transport
from headgate_runtime.worker import collector


def main(brokers: str, topic: str) -> None:
    collector.settle()
    transport = {
        "kind": "kafka",
        "bootstrap.servers": brokers,
        "group.id": "replay",
        "config.storage.topic": topic,
        "offset.storage.topic": topic,
        "status.storage.topic": topic,
    }
    began, cpu = time.perf_counter(), time.process_time()
    opened = open_transport(transport, url="http://127.0.0.1:1/", warn=print)
    config_log = opened.config_log
    end = config_log.end()
    state, position = ConfigState(), 0
    while position < end:
        found, position = config_log.read(position, REPLAY_BATCH)
        some = [(record.offset, record.key, record.value) for record in found]
        state = fold(state, records.decode_all(some, orjson.loads))
    seconds, spent = time.perf_counter() - began, time.process_time() - cpu
    print(seconds, spent, sum(len(state.tasks(name)) for name in state.connector_names()))
    opened.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
