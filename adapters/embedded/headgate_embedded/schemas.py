"""Schemas and subjects in the embedded log, for the schema registry of `headgate up`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import apsw

from headgate.connector.schema_registry import Reference, RegisteredSchema, SchemaVersion
from headgate_embedded.database import Database
from headgate_embedded.schema import FILE_NAME

# The first schema creates these tables, so that a log without schemas is the same as that of a
# version without schemas.
_TABLES: Final = (
    """create table if not exists schemas(
        id integer primary key, kind text not null, body text not null, uses text not null,
        unique (kind, body, uses)
    )""",
    """create table if not exists subjects(
        subject text not null, version integer not null, schema integer not null,
        primary key (subject, version)
    ) without rowid""",
)
_SELECT: Final = """
    select subjects.version, schemas.id, kind, body, uses from subjects
    join schemas on schemas.id = subjects.schema where subject = ? order by subjects.version
"""


class EmbeddedSchemas:
    """A `SchemaLog` on the embedded log. Safe for several threads and processes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        with self._database.read() as connection:
            if not _are_there(connection):
                return None
            rows = connection.execute(
                "select kind, body, uses from schemas where id = ?", (schema_id,)
            )
            for kind, body, uses in rows:
                return RegisteredSchema(kind, body, _references(uses))
        return None

    def versions(self, subject: str) -> Sequence[SchemaVersion]:
        with self._database.read() as connection:
            return _versions(connection, subject) if _are_there(connection) else ()

    def add(self, subject: str, schema: RegisteredSchema, after: int) -> int | None:
        uses = json.dumps([[one.name, one.subject, one.version] for one in schema.references])
        row = (schema.kind, schema.text, uses)
        with self._database.write() as connection:
            for statement in _TABLES:
                connection.execute(statement)
            known = _versions(connection, subject)
            if (known[-1].version if known else 0) != after:
                return None
            connection.execute(
                "insert into schemas(kind, body, uses) values (?, ?, ?) on conflict do nothing", row
            )
            (found,) = connection.execute(
                "select id from schemas where kind = ? and body = ? and uses = ?", row
            )
            schema_id: int = found[0]
            connection.execute(
                "insert into subjects(subject, version, schema) values (?, ?, ?)",
                (subject, after + 1, schema_id),
            )
        return schema_id


def open_schemas(path: str | Path) -> EmbeddedSchemas:
    """Open the schemas of the log in data folder `path`."""
    return EmbeddedSchemas(Database(Path(path) / FILE_NAME))


def _are_there(connection: apsw.Connection) -> bool:
    rows = connection.execute("select 1 from sqlite_schema where name = 'subjects'")
    return any(True for _ in rows)


def _versions(connection: apsw.Connection, subject: str) -> list[SchemaVersion]:
    return [
        SchemaVersion(version, schema_id, RegisteredSchema(kind, body, _references(uses)))
        for version, schema_id, kind, body, uses in connection.execute(_SELECT, (subject,))
    ]


def _references(uses: str) -> tuple[Reference, ...]:
    return tuple([Reference(name, subject, version) for name, subject, version in json.loads(uses)])
