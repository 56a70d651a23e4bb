"""A program that tests run in a process of its own, to kill or stop it: a task in the middle of a
transaction.

``python -m support.kafka.processes SERVERS NAME TOPIC`` initialises a producer under
``NAME-g-c-0``, sends a record and adds an offset to its transaction. It prints ``open``, waits for
a line on its input, commits, and prints how that ended.
"""

import sys

from support.kafka.world import worker_properties

from headgate.ports import FencedError, ProducerRecord
from headgate_kafka.transport import open_transport


def main(servers: str, name: str, topic: str) -> None:
    transport = open_transport(worker_properties(servers, name))
    producer = transport.record_log.producer("c", f"{name}-g-c-0", None)
    producer.init()
    producer.send([ProducerRecord(topic, 0, None, b"from a process")])
    # What `commit` does first: from here on readers of the offsets topic wait for its end.
    offsets = ProducerRecord(f"{name}-offsets", None, b'["c",{"p":1}]', b'{"n":1}')
    producer.send([offsets])
    producer._client.flush(10)  # type: ignore[attr-defined]
    print("open", flush=True)
    sys.stdin.readline()
    try:
        producer.commit([])
    except FencedError as error:
        print(f"fenced: {error}", flush=True)
    else:
        print("committed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
