"""Creates the topics to which a source task writes, by `topic.creation.*` (KIP-158)."""

from typing import Any

from headgate.connector.error_handling import ErrorSettings
from headgate.connector.topic_creation import TopicSettings, topic_groups
from headgate.ports import RecordLog
from headgate.task.messages import TaskSpec

ENABLE = "topic.creation.enable"
"""Worker setting that says whether topics are created at all."""


class TopicCreation:
    """Creates the topics of one task. Source: TopicCreation, TopicAdmin. Differs: without
    `topic.creation.*` in the config topics are created, too. Java leaves that to the brokers
    then."""

    def __init__(self, spec: TaskSpec, log: RecordLog) -> None:
        settings, config = spec.worker_settings, spec.connector_config
        self._spec = spec
        self._log = log
        of_worker = int(settings.get("headgate.topic.partitions", "-1"))
        self._groups = topic_groups(config, TopicSettings(of_worker))
        self._enabled = settings.get(ENABLE, "true").strip().lower() == "true"

    def ensure(self, topic: str, *, letters: bool = False) -> None:
        """Create `topic` if it does not exist.

        Args:
            letters: it is the dead letter queue, which has one partition.

        Raises:
            ValueError: it is the task's own offsets topic.
            RefusedError: these settings or rights do not allow it.
            TransportError: the log could not be reached.
        """
        spec = self._spec
        settings, config = spec.worker_settings, spec.connector_config
        own = config.get("offsets.storage.topic") or settings.get("offset.storage.topic")
        if spec.exactly_once and topic == own:
            raise ValueError(
                "Source tasks may not produce to their own offsets topics when exactly-once "
                f"support is enabled: {topic}"
            )
        if letters:
            replicas = ErrorSettings.from_config(config).replicas
            self._log.create_topic(topic, 1, replicas=replicas)
        elif self._enabled:
            wanted = self._groups.settings(topic)
            more: dict[str, Any] = {}
            if wanted.replicas not in (None, -1):
                more["replicas"] = wanted.replicas
            if wanted.config:
                more["config"] = wanted.config
            # -1 leaves it to the brokers, as in Connect.
            partitions = None if wanted.partitions == -1 else wanted.partitions
            self._log.create_topic(topic, partitions, **more)
