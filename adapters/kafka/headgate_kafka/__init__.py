"""The ports of the core on Apache Kafka: topics, the group, transactions, administration.

What a worker needs besides its tasks, kafka-python above all, is loaded when `open_transport` is
first asked for.
"""

from typing import TYPE_CHECKING, Any

from headgate_kafka.task_transport import open_task_transport as open_task_transport
from headgate_kafka.task_transport import unreached as unreached

if TYPE_CHECKING:
    from headgate_kafka.transport import open_transport as open_transport


def before_forks() -> None:
    """What librdkafka makes with the first client of a process takes 3 ms and 1.4 MiB; made
    once, half of that is shared by all processes that are forked then. Leaves no thread."""
    from confluent_kafka.admin import AdminClient

    # Of no servers, so it connects to none; it ends when it is let go.
    AdminClient({"log_level": 0})


def __getattr__(name: str) -> Any:
    if name == "open_transport":
        from headgate_kafka.transport import open_transport

        return open_transport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
