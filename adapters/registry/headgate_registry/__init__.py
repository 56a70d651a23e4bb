"""Converters whose schemas are in a schema registry: Avro, JSON Schema and Protobuf.

`headgate_registry.converters.working` makes one of a class of
`headgate.connector.registry_converters`. Needs the extra ``registry``.
"""
