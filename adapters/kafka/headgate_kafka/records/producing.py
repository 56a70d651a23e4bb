"""Giving records to the client, and what a record that it refuses is called."""

from itertools import islice
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from headgate.log.value_columns import headers_of
from headgate.ports import ProducerRecord, TransactionOverError, ValueColumn
from headgate_kafka.failures import UNDELIVERED, UNKNOWN_TOPIC, kafka_error

NOW: Final = 0
"""The timestamp for which librdkafka takes the time of sending."""

REFUSED: Final = "a record was refused, for instance for want of the right to write"
"""What ended a transaction whose brokers answer."""
REFUSED_SIZE: Final = (
    "a record, or a batch of small ones, is larger than the topic's max.message.bytes (raise that, "
    "or set producer.override.batch.size below it)"
)
"""As `REFUSED`. librdkafka does not part a batch that is too large, as Java's producer does."""


def produce_values(
    client: Producer, column: ValueColumn, start: int, partition: int
) -> tuple[int, BufferError | KafkaException | SystemError | None]:
    """Give the client the records of a column from the one at `start` on, to one partition.

    Returns:
        How many of the column it has now, and what it raised for the next. It was given no other
        after that.
    """
    produce, topic, key = client.produce, column.topic, column.key
    stamp = column.timestamp_ms or NOW
    at = start
    try:
        # By place, as in `produce_whole`.
        if column.headers:
            rest = zip(islice(column.values, start, None), headers_of(column, start), strict=False)
            for value, headers in rest:
                produce(topic, value, key, partition, None, None, stamp, list(headers))
                at += 1
        else:
            more = (None, None, stamp) if stamp else ()
            for value in islice(column.values, start, None):
                produce(topic, value, key, partition, *more)
                at += 1
    except (BufferError, KafkaException, SystemError) as failed:
        return at, failed
    return at, None


def moved(failed: BaseException, record: ProducerRecord) -> bool:
    """The client knows a partition no longer that was chosen here."""
    error = kafka_error(failed)
    unknown = error is not None and error.code() in UNKNOWN_TOPIC
    return unknown and record.partition is None


def described(record: ProducerRecord, error: KafkaError | None) -> str:
    """A record that was refused, by its topic; one that is too large with its size, and with what
    limits that."""
    if error is None or error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
        return f"a record for {record.topic}"
    size = len(record.key or b"") + len(record.value or b"")
    return (
        f"a record for {record.topic} of {size} bytes (the limits: producer.override."
        "max.request.size of the connector, max.message.bytes of the topic)"
    )


def produce_whole(
    client: Producer, record: ProducerRecord, partition: int, report: Any = None
) -> None:
    """With everything that a record may have; slower."""
    # By place (callback, on_delivery, timestamp, headers): names cost half as much again. A
    # callback of None would hide on_delivery, which is but another name for it.
    timestamp = record.timestamp_ms
    stamp = NOW if timestamp is None else timestamp
    if record.headers:
        headers: Any = list(record.headers)
        client.produce(
            record.topic, record.value, record.key, partition, report, report, stamp, headers
        )
    else:
        client.produce(record.topic, record.value, record.key, partition, report, report, stamp)


def abort_when_sent(client: Producer, timeout_s: float) -> str:
    """Abort the open transaction if all its records have arrived.

    Else it stays open until another producer takes its transactional id, or until it times out.
    What is under way to a slow broker could arrive after the abort, by the same epoch. And where
    records were given up, librdkafka asks for a new epoch after the abort. Of a producer that was
    overtaken and does not know it yet, brokers take that, and end the transaction of its
    successor.

    librdkafka asks for the end as soon as it has begun to add a partition. If the coordinator
    knows of none yet, it refuses (INVALID_TXN_STATE), which ends the producer; and what it adds
    after that stays open. Once a record is acknowledged it knows: librdkafka issue 4849.

    Returns:
        Why it was not aborted; empty: it was.
    """
    if left := client.flush(timeout_s / 2):
        return f"{left} records are still under way"
    if _gave_up(client):
        return "records could not be delivered"
    client.abort_transaction(timeout_s / 2)
    return ""


def _gave_up(client: Producer) -> bool:
    """Whether records of the open transaction could not be delivered. librdkafka tells the state of
    a transaction to whoever asks for what that state does not allow, such as another one."""
    try:
        client.begin_transaction()
    except (KafkaException, SystemError) as told:
        error = kafka_error(told)
        return error is not None and error.txn_requires_abort() and error.code() in UNDELIVERED
    return False


def placed(problem: Exception, place: int) -> Exception:
    """The problem, told the place of its record in the batch."""
    if isinstance(problem, TransactionOverError):
        problem.place = place
    return problem
