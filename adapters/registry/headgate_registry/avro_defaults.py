"""Translation of defaults in Avro's JSON into values for fastavro, with bytes as bytes and named
branches of unions."""

from typing import Any

from headgate.connector.data_error import DataError
from headgate_registry.avro_tree import INNER, Tree, is_branch


def carried_default(tree: Tree, node: Any, given: Any, path: str) -> Any:
    """Return the value of a default for fastavro.

    Raises:
        DataError: the default is not a value of its type.
    """
    node = tree.at(node)
    if isinstance(node, list):
        return _of_union(tree, node, given, path)
    kind = node if isinstance(node, str) else node["type"]
    try:
        if kind in ("bytes", "fixed"):
            return given.encode("latin-1")
        if kind in ("float", "double"):
            return float(given)
        if kind == "array":
            return [carried_default(tree, node["items"], one, path) for one in given]
        if kind == "map":
            return {
                key: carried_default(tree, node["values"], one, path) for key, one in given.items()
            }
        if kind == "record":
            return {
                one["name"]: carried_default(
                    tree, one["type"], given.get(one["name"], one.get("default")), path
                )
                for one in node["fields"]
            }
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{path}: the default {given!r} is none of Avro's {kind}") from error
    return given


def _of_union(tree: Tree, node: list[Any], given: Any, path: str) -> Any:
    """Return the value of a union's default. By Avro's rules it is of the first type, but some
    writers put null first, so all types are tried."""
    if given is None and "null" in node:
        return None
    errors: list[DataError] = []
    for one in node:
        if one == "null":
            continue
        inner = one["fields"][0]["type"] if is_branch(one) else one
        try:
            found = carried_default(tree, inner, given, path)
        except DataError as error:
            errors.append(error)
            continue
        return (one["name"], {INNER: found}) if is_branch(one) else found
    raise errors[0] if errors else DataError(f"{path}: the default {given!r} fits no type")
