"""Subjects of schemas. Source: TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy."""

from headgate.connector.data_error import DataError


def subject_of(strategy: str, topic: str, record: str | None, *, is_key: bool) -> str:
    """Return the subject of a schema.

    Args:
        strategy: the strategy's class, with or without its package.
        record: full name of the record that the schema describes. None: it describes none.

    Raises:
        DataError: the strategy needs the record's name, and there is none.
    """
    simple = strategy.rpartition(".")[2].lower()
    if simple == "topicnamestrategy":
        return f"{topic}-{'key' if is_key else 'value'}"
    if record is None:
        raise DataError(
            f"the {'key' if is_key else 'value'} of topic {topic} is no record with a name, "
            f"expected one: {strategy.rpartition('.')[2]} makes the subject of it"
        )
    return record if simple == "recordnamestrategy" else f"{topic}-{record}"
