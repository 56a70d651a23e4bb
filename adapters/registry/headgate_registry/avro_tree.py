"""A prepared Avro schema, with names resolved, and the types of unions distinguished by name.

In a union of several types, each type is wrapped in a record with a single field. The bytes are the
same. fastavro then reports the branch of a value by the record's name, and need not guess it from
the value.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.connector.data_error import DataError
from headgate_registry import avro_names as names

BRANCH: Final = "headgate.Branch"
INNER: Final = "v"
PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
_KEPT: Final = ("type", "name", "fields", "items", "values", "symbols", "size")


@dataclass(slots=True)
class Tree:
    """A prepared schema. `root` has all properties, and `bare` only those that fastavro needs.
    Named types have full names."""

    root: Any
    named: dict[str, Any] = field(default_factory=dict[str, Any])
    record: str | None = None
    """Full name of the record, if the schema is a record, or a union of a record and null."""

    @property
    def bare(self) -> Any:
        return _bare(self.root)

    def at(self, node: Any) -> Any:
        """Return the definition of a name. Other nodes are returned as they are."""
        return self.named.get(node, node) if isinstance(node, str) else node


def tree_of(document: Any, others: Mapping[str, str] | None = None) -> Tree:
    """Prepare a schema that is parsed JSON.

    Args:
        others: texts of schemas that this one refers to, by name.

    Raises:
        DataError: this is no Avro schema.
    """
    maker = _Maker({})
    for text in (others or {}).values():
        maker.learn(json.loads(text), None)
    tree = Tree(None, maker.named)
    try:
        tree.root = maker.walk(document, None)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"no schema of Avro: {type(error).__name__}: {error}") from error
    members = [one for one in tree.root if one != "null"] if isinstance(tree.root, list) else []
    root = tree.at(members[0] if len(members) == 1 else tree.root)
    if isinstance(root, dict) and root["type"] == "record":
        tree.record = root["name"]
    return tree


def tree_of_text(text: str, others: Mapping[str, str] | None = None) -> Tree:
    """As `tree_of`, from a text.

    Raises:
        DataError: this is no Avro schema.
    """
    try:
        document = json.loads(text)
    except ValueError:
        document = text.strip()  # a primitive's name, as some registries give it
    return tree_of(document, others)


@dataclass(slots=True)
class _Maker:
    named: dict[str, Any]
    foreign: dict[str, tuple[Any, str | None]] = field(
        default_factory=dict[str, tuple[Any, "str | None"]]
    )
    """Definitions from other schemas. Each is inserted where it is used first."""
    branches: int = 0

    def learn(self, node: Any, namespace: str | None) -> None:
        if isinstance(node, dict):
            if node.get("type") in ("record", "error", "enum", "fixed"):
                full = names.full_name(node, namespace)
                self.foreign[full] = node, namespace
                namespace = full.rpartition(".")[0] or None
                for one in node.get("fields", ()):
                    self.learn(one["type"], namespace)
            else:
                for key in ("type", "items", "values"):
                    self.learn(node.get(key), namespace)
        elif isinstance(node, list):
            for one in node:
                self.learn(one, namespace)

    def walk(self, node: Any, namespace: str | None) -> Any:
        if isinstance(node, str):
            return self._reference(node, namespace)
        if isinstance(node, list):
            return self._union(node, namespace)
        kind = node["type"]
        if isinstance(kind, (dict, list)):
            return self.walk(kind, namespace)
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(node, namespace)
        if kind == "array":
            return {**node, "items": self.walk(node["items"], namespace)}
        if kind == "map":
            return {**node, "values": self.walk(node["values"], namespace)}
        if kind not in PRIMITIVES:
            return self._reference(kind, namespace)
        return node

    def _reference(self, name: str, namespace: str | None) -> Any:
        if name in PRIMITIVES:
            return name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate in self.named:
                return candidate
            if candidate in self.foreign:
                return self._named(*self.foreign[candidate])
        raise DataError(f"no schema of Avro: the type {name} is defined nowhere in it")

    def _named(self, node: dict[str, Any], namespace: str | None) -> Any:
        full = names.full_name(node, namespace)
        made = {**node, "name": full}
        made.pop("namespace", None)
        if made["type"] == "error":
            made["type"] = "record"
        self.named[full] = made
        inner = full.rpartition(".")[0] or None
        if "fields" in node:
            made["fields"] = [
                {**one, "type": self.walk(one["type"], inner)} for one in node["fields"]
            ]
        return made

    def _union(self, node: list[Any], namespace: str | None) -> Any:
        walked = [self.walk(one, namespace) for one in node]
        if sum(one != "null" for one in walked) < 2:
            return walked
        made: list[Any] = []
        for one in walked:
            if one == "null":
                made.append(one)
                continue
            name = f"{BRANCH}{self.branches}"
            self.branches += 1
            made.append({"type": "record", "name": name, "fields": [{"name": INNER, "type": one}]})
        return made


def is_branch(node: Any) -> bool:
    return isinstance(node, dict) and str(node.get("name", "")).startswith(BRANCH)


def _bare(node: Any) -> Any:
    if isinstance(node, list):
        return [_bare(one) for one in node]
    if not isinstance(node, dict):
        return node
    bare = {key: node[key] for key in _KEPT if key in node}
    if "fields" in bare:
        bare["fields"] = [
            {"name": one["name"], "type": _bare(one["type"])} for one in bare["fields"]
        ]
    for key in ("items", "values"):
        if key in bare:
            bare[key] = _bare(bare[key])
    return bare
