"""The rules by which one Avro schema reads data of another. Source: Avro's specification (schema
resolution), and SchemaCompatibility of its Java library."""

from dataclasses import dataclass, field
from typing import Any, Final

from headgate_registry.avro_tree import Tree, is_branch, tree_of_text

_PROMOTIONS: Final = frozenset(
    {
        *(("int", "long"), ("int", "float"), ("int", "double"), ("long", "float")),
        *(("long", "double"), ("float", "double"), ("string", "bytes"), ("bytes", "string")),
    }
)
"""(written type, type as which it can be read)."""


def why_avro_cannot_read(new: str, old: str) -> str | None:
    """Return why the schema `new` cannot read data of `old`, naming the first field. None: it can.

    Beyond Avro's rules, a decimal must keep its scale, and a logical type must stay the same.
    Otherwise numbers would be read as different values.
    """
    reader, writer = tree_of_text(new), tree_of_text(old)
    return _Check(reader, writer).why(reader.root, writer.root, "value")


@dataclass(slots=True)
class _Check:
    reader: Tree
    writer: Tree
    seen: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def why(self, new: Any, old: Any, path: str) -> str | None:
        new, old = self.reader.at(new), self.writer.at(old)
        if is_branch(new):
            new = self.reader.at(new["fields"][0]["type"])
        if is_branch(old):
            old = self.writer.at(old["fields"][0]["type"])
        if isinstance(old, list):
            reasons = [self.why(new, one, path) for one in old]
            return next((reason for reason in reasons if reason), None)
        if isinstance(new, list):
            reasons = [self.why(one, old, path) for one in new]
            if None in reasons:
                return None
            if _kind(old) == "null":
                return f"{path} may be null in what was written"
            near = [
                reason
                for one, reason in zip(new, reasons, strict=True)
                if _kind(self.reader.at(one)) == _kind(old)
            ]
            return near[0] if near else f"{path} has no type for Avro's {_kind(old)}"
        return self._plain(new, old, path)

    def _plain(self, new: Any, old: Any, path: str) -> str | None:
        kind, before = _kind(new), _kind(old)
        if kind != before:
            if (before, kind) in _PROMOTIONS and _logical(new) == _logical(old):
                return None
            if before == "null":
                return f"{path} may be null in what was written"
            return f"{path} was of Avro's type {before} and is now {kind}"
        if _logical(new) != _logical(old):
            return f"{path} was {_logical(old) or before} and is now {_logical(new) or kind}"
        if kind == "array":
            return self.why(new["items"], old["items"], f"{path}[]")
        if kind == "map":
            return self.why(new["values"], old["values"], f"{path}[]")
        if kind == "enum":
            lost = [one for one in old["symbols"] if one not in new["symbols"]]
            return f"{path} lacks the symbol {lost[0]}" if lost and "default" not in new else None
        if kind == "fixed" and new["size"] != old["size"]:
            return f"{path} had {old['size']} bytes and has {new['size']} now"
        return self._record(new, old, path) if kind == "record" else None

    def _record(self, new: Any, old: Any, path: str) -> str | None:
        if new["name"].rpartition(".")[2] != old["name"].rpartition(".")[2]:
            return f"{path} had the name {old['name']} and is now {new['name']}"
        if (new["name"], old["name"]) in self.seen:
            return None
        self.seen.add((new["name"], old["name"]))
        before = {one["name"]: one for one in old["fields"]}
        for one in new["fields"]:
            where = f"{path}.{one['name']}"
            names = (one["name"], *one.get("aliases", ()))
            known = next((before[name] for name in names if name in before), None)
            if known is None:
                if "default" not in one:
                    return f"{where} is new and has no default"
                continue
            if (reason := self.why(one["type"], known["type"], where)) is not None:
                return reason
        return None


def _kind(node: Any) -> str:
    if isinstance(node, list):
        return "union"
    return str(node if isinstance(node, str) else node["type"])


def _logical(node: Any) -> str | None:
    if not isinstance(node, dict):
        return None
    name = node.get("logicalType")
    return f"decimal of scale {node.get('scale') or 0}" if name == "decimal" else name
