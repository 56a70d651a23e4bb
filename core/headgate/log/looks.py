"""What a sink task may ask the log about records that it does not consume."""

from headgate.ports import RecordLog, TopicPartition


def first_record(log: RecordLog, place: TopicPartition, start: int, end: int) -> int | None:
    """Return the offset of the first record from `start` and before `end`, or None if the log has
    none."""
    topic, partition = place
    start = max(start, log.start_offsets([topic]).get(place, 0))
    end = min(end, log.end_offsets([topic]).get(place, 0))
    found = log.read(topic, partition, start, end, 1) if start < end else ()
    return found[0].offset if found else None


def record_time(log: RecordLog, place: TopicPartition, offset: int) -> int | None:
    """Return the timestamp in ms of the record at `offset`, or None if the log no longer has it.

    Raises:
        LookupError: the partition ends before `offset`.
    """
    topic, partition = place
    end = log.end_offsets([topic]).get(place, 0)
    if offset >= end:
        raise LookupError(f"it ends at offset {end}")
    if offset < log.start_offsets([topic]).get(place, 0):
        return None
    found = log.read(topic, partition, offset, offset + 1, 1)
    return found[0].timestamp_ms if found else None


def last_record(log: RecordLog, place: TopicPartition, end: int) -> tuple[int, int] | None:
    """Return offset and timestamp in ms of the last record before `end`, if it is one of the last
    two offsets. The last one is the marker of a transaction where its producer wrote by them."""
    for offset in range(end - 1, max(end - 3, -1), -1):
        time = record_time(log, place, offset)
        if time is not None:
            return offset, time
    return None
