"""Placeholder until `ConfigDef` is written; see the connector API."""


class ConfigDef:
    pass
