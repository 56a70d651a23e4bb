"""Schemas and subjects in the embedded log."""

import threading
from pathlib import Path

from headgate.connector.schema_registry import Reference, RegisteredSchema
from headgate_embedded.schemas import EmbeddedSchemas, open_schemas
from headgate_registry.embedded import EmbeddedRegistry

ONE = RegisteredSchema("AVRO", '"string"')
TWO = RegisteredSchema("JSON", "{}", (Reference("a", "b", 1),))


def test_a_schema_has_one_id_under_all_subjects(tmp_path: Path) -> None:
    schemas = open_schemas(tmp_path)
    assert schemas.by_id(1) is None
    assert list(schemas.versions("a")) == []
    assert schemas.add("a", ONE, 0) == 1
    assert schemas.add("b", TWO, 0) == 2
    assert schemas.add("b", ONE, 1) == 1
    again = open_schemas(tmp_path)
    assert (again.by_id(1), again.by_id(2), again.by_id(3)) == (ONE, TWO, None)
    assert [(one.version, one.id) for one in again.versions("b")] == [(1, 2), (2, 1)]


def test_the_second_of_two_that_add_at_once_is_told(tmp_path: Path) -> None:
    schemas = open_schemas(tmp_path)
    assert schemas.add("a", ONE, 0) == 1
    assert schemas.add("a", TWO, 0) is None


def test_many_that_register_one_schema_get_one_version(tmp_path: Path) -> None:
    found: list[int] = []

    def register() -> None:
        found.append(EmbeddedRegistry(open_schemas(tmp_path)).register("a", ONE))

    threads = [threading.Thread(target=register) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 6
    schemas: EmbeddedSchemas = open_schemas(tmp_path)
    assert len(schemas.versions("a")) == 1
