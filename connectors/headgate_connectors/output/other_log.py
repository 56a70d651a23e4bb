"""Whether the log is the one whose records a sink's output has.

A data folder or a topic that was made anew counts its offsets from 0 again. Records below the
offset up to which the output has records would then be passed over, as if they were in it.
"""

from collections.abc import Callable

from headgate.connector.api import SinkTaskContext
from headgate.ports import TopicPartition
from headgate_connectors.output.manifest import ManifestError, SinkManifest

MADE_ANEW = (
    "The data folder of the log, or the topic, was made anew, and records below that offset would "
    "be left out"
)
WAYS_ON = (
    f"{MADE_ANEW}. Give the sink another path, or move its folder away; to leave them out, set "
    "on.missing.output = accept"
)


def check_log(
    context: SinkTaskContext, manifest: SinkManifest, place: TopicPartition, on_missing: str
) -> None:
    """To be asked where the sink's group has no offset: a log that was made anew has none.

    Raises:
        ManifestError: the last record in the files is not in the log, or another one is there.
    """
    entries = manifest.entries(place)
    if not entries:
        return
    end, time = entries[-1].end, entries[-1].time
    text = other_log(context.record_time, "the files have", place, end, time)
    if text is None:
        return
    if on_missing != "accept":
        raise ManifestError(f"{manifest.root}: {text}. {WAYS_ON}")
    context.log(f"{manifest.root}: {text}: going on behind them, as on.missing.output is accept")


def other_log(
    record_time: Callable[[str, int, int], int | None],
    who_has: str,
    place: TopicPartition,
    end: int,
    expected: int | None,
) -> str | None:
    """What shows that the log is another one than that of the output; None: nothing does.

    Args:
        record_time: `SinkTaskContext.record_time`.
        who_has: subject and verb of the text.
        end: offset after the last record of `place` in the output.
        expected: timestamp of that record in milliseconds; None: it is not known.
    """
    topic, partition = place
    try:
        time = record_time(topic, partition, end - 1)
    except LookupError as error:
        seen = str(error)
    else:
        if time is None or expected is None or time == expected:
            return None
        seen = f"its record at offset {end - 1} is of {time} ms, expected {expected} ms"
    return (
        f"{who_has} the records of {topic}-{partition} up to offset {end - 1}, but this is another "
        f"log: {seen}"
    )
