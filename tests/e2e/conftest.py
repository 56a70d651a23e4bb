"""Fixtures of tests with whole clusters."""

from support.kafka_cluster import kafka_cluster  # noqa: F401
from support.kafka_world import kafka_world  # noqa: F401
