"""The ports of the core on Apache Kafka: topics, the group, transactions, administration."""

from headgate_kafka.transport import open_task_transport as open_task_transport
from headgate_kafka.transport import open_transport as open_transport
