"""AvroConverter with a registry. fastavro encodes and decodes the bytes. Schemas and types are
translated here."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

from headgate.connector import registry_converters
from headgate.connector.data_error import DataError
from headgate.connector.registry_converters import AvroForm
from headgate.connector.schema import Schema, SchemaAndValue
from headgate.connector.schema_registry import AVRO, RegisteredSchema
from headgate.java.json import dumps
from headgate_registry.avro_schema import avro_of
from headgate_registry.avro_stream import parsed_schema, stream_reader
from headgate_registry.avro_tree import Tree, tree_of, tree_of_text
from headgate_registry.avro_write import Encode, Encoders
from headgate_registry.base import FormatConverter, Read, Written
from headgate_registry.references import texts


class Working(FormatConverter, registry_converters.AvroConverter):
    """The converter. It writes and reads values as Confluent's AvroConverter does."""

    CONFIG = registry_converters.AvroConverter.CONFIG
    KIND = AVRO

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        super().configure(config, is_key=is_key)
        self._meta: bool = self.parsed["connect.meta.data"]
        self._enums: bool = self.parsed["enhanced.avro.schema.support"]
        self._keep_nulls: bool = self.parsed["ignore.default.for.nullables"]

    def written(self, schema: Schema) -> Written:
        document = avro_of(schema, meta=self._meta, enums=self._enums)
        tree = tree_of(document)
        text = dumps(document).decode()
        return Written(RegisteredSchema(AVRO, text), tree.record, self._writer(schema, tree))

    def written_as(self, schema: Schema, target: RegisteredSchema) -> Callable[[Any], bytes]:
        return self._writer(schema, self._tree(target))

    def reader(self, found: RegisteredSchema) -> Read:
        schema, next_value = stream_reader(self._tree(found))

        def read(data: bytes) -> SchemaAndValue:
            stream = io.BytesIO(data)
            value = next_value(stream, f"these {len(data)} bytes")
            if stream.tell() != len(data):
                raise DataError(
                    f"{len(data) - stream.tell()} bytes are left behind the value, expected none"
                )
            return SchemaAndValue(schema, value)

        return read

    def _tree(self, found: RegisteredSchema) -> Tree:
        return tree_of_text(found.text, texts(self._checked_registry, found))

    def form(self, topic: str, schema: Schema) -> AvroForm:
        entry = self._entry(topic, schema)
        assert isinstance(entry.write, _Writer)
        tree = entry.write.tree
        return AvroForm(entry.head, tree.root, tree.named, self._keep_nulls)

    def _writer(self, schema: Schema, tree: Tree) -> Callable[[Any], bytes]:
        encode = Encoders(tree, keep_nulls=self._keep_nulls).of(schema.as_required(), tree.root)
        return _Writer(tree, encode, parsed_schema(tree))


@dataclass(frozen=True, slots=True)
class _Writer:
    tree: Tree
    """The Avro schema of the values it writes."""
    encode: Encode
    parsed: Any

    def __call__(self, value: Any) -> bytes:
        stream = io.BytesIO()
        encoded = self.encode(value)
        try:
            fastavro.schemaless_writer(stream, self.parsed, encoded)
        except Exception as error:  # ValueError, TypeError, UnicodeEncodeError and others
            raise DataError(f"the value has no form in Avro: {error}") from error
        return stream.getvalue()
