"""Fixtures of tests with whole clusters."""

from support.commands.pipelines import ups  # noqa: F401
from support.kafka.cluster import kafka_cluster  # noqa: F401
from support.kafka.world import kafka_world  # noqa: F401
