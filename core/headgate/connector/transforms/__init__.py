"""Transforms and predicates by Connect's names, and the chain that a connector config names.

A chain is compiled once for a task: configs are parsed, patterns are read, and the changed schemas
of records are cached, so that a record costs only its own change. Source: Connect's `transforms`
package, `TransformationStage` (4.3.1).
"""

from headgate.connector.transforms.base import Record, RecordTransform
from headgate.connector.transforms.chain import (
    Stage,
    by_topic,
    make_transforms,
    takes_rows_at_once,
    transform_sink,
    transform_source,
)
from headgate.connector.transforms.predicates import Predicate
from headgate.connector.transforms.registry import PREDICATES, TRANSFORMS

__all__ = [
    "PREDICATES",
    "TRANSFORMS",
    "Predicate",
    "Record",
    "RecordTransform",
    "Stage",
    "by_topic",
    "make_transforms",
    "takes_rows_at_once",
    "transform_sink",
    "transform_source",
]
