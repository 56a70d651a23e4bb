"""The ports of the core on Apache Kafka: topics, the group, transactions, administration.

Task processes import this package too. So `open_transport`, which loads what only workers need
(kafka-python above all), is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

from headgate_kafka.task_transport import open_task_transport as open_task_transport
from headgate_kafka.task_transport import unreached as unreached

if TYPE_CHECKING:
    from headgate_kafka.transport import open_transport as open_transport


def before_forks() -> None:
    """Make and drop one librdkafka client, so that forked processes share what it sets up.

    The first client of a process costs 3 ms and 1.4 MiB. Processes forked afterwards share half of
    that. No thread is left running.
    """
    from confluent_kafka.admin import AdminClient

    # The client has no servers, so it connects to none. It ends when its last reference is dropped.
    AdminClient({"log_level": 0})


def __getattr__(name: str) -> Any:
    if name == "open_transport":
        from headgate_kafka.transport import open_transport

        return open_transport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
