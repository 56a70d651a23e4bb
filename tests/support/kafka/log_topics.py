"""Topics of which some match a sink's pattern, with records that name their place."""

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from support.kafka.cluster import create_topic

SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


class LogTopics:
    """Topics ``<name>-logs-…`` and a file sink of some of them: those that end in a letter other
    than x and a digit.

    `expected` has the lines that the sink's file must have, each once, with partitions in any
    order.
    """

    def __init__(self, address: str, name: str, file: Path) -> None:
        self.address, self.name, self.file = address, name, file
        self.connector = f"{name}-sink"
        self.expected: list[str] = []
        self.ends: dict[tuple[str, int], int] = {}
        self._producer = Producer({"bootstrap.servers": address, "log_level": 0})

    def config(self) -> dict[str, str]:
        """Return the sink's config, for workers of either kind."""
        return {
            "connector.class": SINK,
            "file": str(self.file),
            "topics.regex": self.name.replace(".", r"\.") + r"-logs-[a-z&&[^x]]\d",
            "tasks.max": "2",
        }

    def add(self, which: str, partitions: int, count: int) -> None:
        """Create a topic that the pattern matches, with `count` records in each partition."""
        create_topic(self.address, self.topic(which), partitions)
        self.write(which, partitions, count)

    def write(self, which: str, partitions: int, count: int) -> None:
        for partition in range(partitions):
            place = self.topic(which), partition
            first = self.ends.get(place, 0)
            lines = [f"{place[0]} {partition} {n}" for n in range(first, first + count)]
            for line in lines:
                self._producer.produce(place[0], line, partition=partition)
            self.expected += lines
            self.ends[place] = first + count
        assert self._producer.flush(30) == 0

    def add_near(self, *names: str) -> None:
        """Create topics, each with a record, whose names only contain a match of the pattern or
        nearly match it."""
        for name in names:
            create_topic(self.address, name)
            self._producer.produce(name, f"near {name}")
        assert self._producer.flush(30) == 0

    def remove(self, which: str) -> None:
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        topic = self.topic(which)
        client.delete_topics([topic])[topic].result(20)

    def topic(self, which: str) -> str:
        return f"{self.name}-logs-{which}"

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []

    def complete(self) -> bool:
        """Return whether the sink has written as many lines as are expected. Duplicates count as
        well."""
        return len(self.lines()) >= len(self.expected)

    def check(self) -> None:
        assert sorted(self.lines()) == sorted(self.expected)

    def rest_offsets(self) -> list[dict[str, object]]:
        """Return the offsets as `GET /connectors/{connector}/offsets` shows them when all is
        committed."""
        return [
            {"partition": {"kafka_topic": t, "kafka_partition": p}, "offset": {"kafka_offset": end}}
            for (t, p), end in sorted(self.ends.items())
        ]
