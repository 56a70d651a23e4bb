"""Records for a sink task on the embedded log, and the offsets that it has committed."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from headgate.ports import Headers, ProducerRecord
from headgate_embedded import open_transport, transport_settings


def fill(folder: Path, values: Sequence[bytes], partitions: int = 1, headers: Headers = ()) -> None:
    """Write the values to topic `t`, to its partitions in turn. Each record has the same
    headers."""
    with closing(open_transport(transport_settings(folder))) as transport:
        transport.record_log.create_topic("t", partitions)
        producer = transport.record_log.producer("test", None, None)
        producer.send(
            [
                ProducerRecord("t", n % partitions, None, value, headers)
                for n, value in enumerate(values)
            ]
        )
        producer.acks()


def committed(folder: Path) -> Mapping[tuple[str, int], int]:
    """Return the committed offsets of the group of connector `c`."""
    with closing(open_transport(transport_settings(folder))) as transport:
        return transport.record_log.committed("connect-c")
