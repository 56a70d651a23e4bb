"""Converters for Avro, JSON Schema and Protobuf, with the schemas in a schema registry.

`headgate_registry.converters.working` makes a working converter for a class of
`headgate.connector.registry_converters`. It needs the extra ``registry``.
"""
