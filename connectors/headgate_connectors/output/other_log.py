"""Whether the log is the one that a folder's files are of.

A data folder or a topic that was made anew counts its offsets from 0 again. Records below the
offset up to which the folder has files would then be passed over, as if they were in them.
"""

from headgate.connector.api import SinkTaskContext
from headgate.ports import TopicPartition
from headgate_connectors.output.manifest import ManifestError, SinkManifest

WAYS_ON = (
    "The data folder of the log, or the topic, was made anew, and records below that offset would "
    "be left out. Give the sink another path, or move its folder away; to leave them out, set "
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
    last, (topic, partition) = entries[-1], place
    try:
        time = context.record_time(topic, partition, last.end - 1)
    except LookupError as error:
        seen = str(error)
    else:
        if time is None or last.time is None or time == last.time:
            return
        seen = f"its record at offset {last.end - 1} is of {time} ms, expected {last.time} ms"
    text = (
        f"the files have the records of {topic}-{partition} up to offset {last.end - 1}, but this "
        f"is another log: {seen}"
    )
    if on_missing != "accept":
        raise ManifestError(f"{manifest.root}: {text}. {WAYS_ON}")
    context.log(f"{manifest.root}: {text}: going on behind them, as on.missing.output is accept")
