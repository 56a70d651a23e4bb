"""Measures the producer alone, beside `java/RawProducer.java`. ``python -m bench.kafka_raw`` takes
the same arguments and prints the same."""

import sys
import time
from pathlib import Path

from confluent_kafka import Producer

from headgate_kafka.records.producer import DEFAULTS


def main(brokers: str, file: str, topic: str, records: str, interval_ms: str) -> None:
    producer = Producer(
        {
            **DEFAULTS,
            "bootstrap.servers": brokers,
            "transactional.id": f"raw-python-{topic}",
            "acks": "all",
        }
    )
    producer.init_transactions(30)
    began, cpu = time.perf_counter(), time.process_time()
    _send(producer, Path(file), topic, int(records), int(interval_ms) / 1000)
    print(time.perf_counter() - began, time.process_time() - cpu)


def _send(producer: Producer, file: Path, topic: str, records: int, interval_s: float) -> None:
    produce = producer.produce
    with file.open("rb") as lines:
        while batch := lines.readlines(2_000 * 101):
            producer.begin_transaction()
            until = time.perf_counter() + interval_s
            while batch:
                for line in batch:
                    while True:
                        try:
                            produce(topic, line[:-1])
                            break
                        except BufferError:
                            producer.poll(0.01)
                producer.poll(0)
                if records or time.perf_counter() > until:
                    break
                batch = lines.readlines(2_000 * 101)
            producer.commit_transaction()


if __name__ == "__main__":
    main(*sys.argv[1:])
