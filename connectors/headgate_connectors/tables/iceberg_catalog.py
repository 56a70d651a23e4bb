"""Which Iceberg table of which catalog a connector's config names."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

CATALOG: Final = "catalog."
"""What settings that are the catalog's own properties begin with."""


def catalog_of(config: Mapping[str, str]) -> dict[str, str]:
    """Properties of pyiceberg's catalog; may hold passwords."""
    return {key[len(CATALOG) :]: text for key, text in config.items() if key.startswith(CATALOG)}


def catalog_errors(config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """What is wrong with ``table`` and the catalog's properties."""
    table = config.get("table", "").strip()
    if table and not re.fullmatch(r"[^.\s]+(\.[^.\s]+)+", table):
        return {"table": [f"is {table}, expected a namespace and a name, such as shop.orders"]}
    if not catalog_of(config):
        text = "names no catalog: set catalog.type and catalog.uri, as pyiceberg knows them"
        return {"table": [text]}
    return {}
