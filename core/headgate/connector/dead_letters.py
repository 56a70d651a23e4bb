"""What becomes of records that were to go to a dead letter queue: this version writes none.

Differs from Connect (DeadLetterQueueReporter), whose sinks write such a record there and go on.
"""

from collections.abc import Mapping
from typing import Final

TOPIC: Final = "errors.deadletterqueue.topic.name"


def unwritten_queue(config: Mapping[str, str]) -> str:
    """What ends the words about a record that a sink cannot use, where the record fails the task
    though `errors.tolerance` is all: who names a queue wants to keep it, and to pass over it would
    lose it, for the offsets after it are committed. Empty: the tolerance decides alone."""
    topic = (config.get(TOPIC) or "").strip()
    if not topic or config.get("errors.tolerance", "none").strip().lower() != "all":
        return ""
    return (
        f". It was to go to the dead letter queue {topic}, but this version of Headgate writes "
        "none, so the task fails rather than lose the record. Mend the record or what reads it; or "
        f"remove {TOPIC}, and such records are skipped and logged"
    )
