"""The installed connectors and their options: as data, as text and as a page.

All of it comes from the connectors' `ConfigDef`s, so it cannot be out of date.
"""

import inspect
import re
import textwrap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, Final

from headgate.connector.config import ConfigDef, ConfigKeyInfo
from headgate.connector.framework import sink_keys, source_keys
from headgate_runtime.plugins.find import PluginError, available, connector_kind, find_connector
from headgate_runtime.plugins.matching import matches
from headgate_runtime.plugins.parts import PARTS, part_class, part_definition

WIDTH: Final = 100
REQUIRED: Final = "required"
NO_VALUE: Final = "no value"
EMPTY: Final = "empty"
_HEADINGS: Final = ("option", "type", "default", "importance")


@dataclass(frozen=True, slots=True)
class Description:
    """One plugin class. `own` has its options, `framework` those of every source or every sink. A
    plugin that is no connector has none of the latter."""

    name: str
    target: str
    """The class as ``module:Class``."""
    kind: str
    """"source", "sink", "transformation", "predicate", "converter" or "header_converter"."""
    version: str
    runner: str | None
    """The only runner that its tasks can have. None: any."""
    summary: str
    own: tuple[ConfigKeyInfo, ...]
    framework: tuple[ConfigKeyInfo, ...]

    def matching(self, pattern: re.Pattern[str]) -> "Description":
        """Return the description with only those options whose name or meaning matches."""

        def kept(infos: Iterable[ConfigKeyInfo]) -> tuple[ConfigKeyInfo, ...]:
            return tuple(each for each in infos if matches(pattern, each.name, each.documentation))

        return replace(self, own=kept(self.own), framework=kept(self.framework))

    def plain(self) -> dict[str, Any]:
        """Return what ``headgate plugins NAME --json`` prints. Options have the fields of Connect's
        ``GET /connector-plugins/NAME/config``."""
        return {
            "name": self.name,
            "class": self.target,
            "type": self.kind,
            "version": self.version,
            "runner": self.runner,
            "summary": self.summary,
            "options": [info.plain() for info in self.own],
            "options_of_every_connector": [info.plain() for info in self.framework],
        }


def describe(name: str) -> Description:
    """Return the description of a class.

    Args:
        name: a value of ``connector.class``, or the class of a transform, predicate or converter.

    Raises:
        PluginError: there is no such class, or it cannot be imported.
    """
    for kind, names in PARTS:
        if name in names:
            return _describe_part(name, kind, part_class(name))
    connector = find_connector(name)
    own = connector.config_def()
    framework = common_options(connector_kind(connector))
    return Description(
        name=name,
        target=available().get(name, f"{connector.__module__}:{connector.__qualname__}"),
        kind=connector_kind(connector),
        version=connector.VERSION,
        runner=connector.REQUIRES_RUNNER,
        summary=_summary(connector),
        own=_infos(own),
        framework=tuple(info for info in framework if info.name not in own.keys),
    )


def _describe_part(name: str, kind: str, part: type) -> Description:
    return Description(
        name=name,
        target=f"{part.__module__}:{part.__qualname__}",
        kind=kind,
        version=version("headgate"),
        runner=None,
        summary=_summary(part),
        own=_infos(part_definition(name) or ConfigDef()),
        framework=(),
    )


def common_options(kind: str) -> tuple[ConfigKeyInfo, ...]:
    """Return the options of every connector of this kind ("source" or "sink"). Options whose
    default is the worker's have none here."""
    return _infos(sink_keys({}) if kind == "sink" else source_keys({}))


def listed(kinds: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return what ``headgate plugins --json`` prints: each announced class, by name. With `kinds`,
    only classes of these kinds are listed, which may be parts such as transforms. A class that
    cannot be imported has `error`, and no kind."""
    found: list[dict[str, Any]] = []
    for name, target in available().items():
        row: dict[str, Any] = {"name": name, "class": target, "error": None}
        try:
            connector = find_connector(name)
        except PluginError as error:
            found.append(
                {**row, "type": None, "version": None, "runner": None, "error": str(error)}
            )
            continue
        kind, runner = connector_kind(connector), connector.REQUIRES_RUNNER
        found.append({**row, "type": kind, "version": connector.VERSION, "runner": runner})
    for kind, names in PARTS:
        for name in sorted(names) if kind in kinds else ():
            if "." in name:
                continue  # Connect's name of the same class
            row = {"name": name, "class": name, "error": None, "type": kind}
            found.append({**row, "version": version("headgate"), "runner": None})
    return [row for row in found if not kinds or row["type"] in kinds]


def listed_text(kinds: Collection[str] = ()) -> str:
    """Return what ``headgate plugins`` prints: a line for each class."""
    rows = listed(kinds)
    width = max((len(row["name"]) for row in rows), default=0)
    lines: list[str] = []
    for row in rows:
        needs = f", runner {row['runner']} only" if row["runner"] else ""
        what = f"{row['type']}{needs}  {row['class']}"
        if row["error"]:
            what = f"cannot be used: {row['error']}"
        lines.append(f"{row['name']:<{width}}  {what}")
    return "\n".join(lines)


def as_text(one: Description) -> str:
    """Return what ``headgate plugins NAME`` prints."""
    runner = f", runner {one.runner} only" if one.runner else ""
    lines = [f"{one.name}: {one.kind}{runner}, version {one.version}, {one.target}"]
    lines += textwrap.wrap(one.summary, WIDTH)
    lines += ["", f"Options of {one.name}", *_text_rows(one.own)]
    if one.framework:
        lines += ["", f"Options of every {one.kind}", *_text_rows(one.framework)]
    return "\n".join(lines)


def as_page(names: Iterable[str], introduction: str) -> str:
    """Return ``docs/run/connectors.md``, in Markdown."""
    parts = [introduction.strip()]
    for one in map(describe, names):
        runner = f' It needs `runner = "{one.runner}"`.' if one.runner else ""
        parts += [f"## {one.name}", f"A {one.kind}. {one.summary}{runner}", _table(one.own)]
    for kind in ("source", "sink"):
        parts += [f"## Options of every {kind}", _table(common_options(kind))]
    return "\n\n".join(parts) + "\n"


def default_of(info: ConfigKeyInfo) -> str:
    """Return the default as users read it, or a word if it is no text."""
    if info.required:
        return REQUIRED
    if info.default_value is None:
        return NO_VALUE
    return info.default_value or EMPTY


def _infos(definition: ConfigDef) -> tuple[ConfigKeyInfo, ...]:
    return tuple(ConfigKeyInfo.of(key) for key in definition.keys.values())


def _summary(connector: type) -> str:
    """Return the first paragraph of the class's docstring, on one line."""
    text = inspect.cleandoc(connector.__doc__ or "")
    return " ".join(text.partition("\n\n")[0].split())


def _text_rows(infos: Sequence[ConfigKeyInfo]) -> list[str]:
    if not infos:
        return ["  none"]
    rows = [_HEADINGS, *map(_row, infos)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines: list[str] = []
    for row, info in zip(rows, [None, *infos], strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"  {'  '.join(cells)}".rstrip())
        if info is not None and info.documentation:
            indent = " " * 6
            lines += textwrap.wrap(
                info.documentation, WIDTH, initial_indent=indent, subsequent_indent=indent
            )
    return lines


def _row(info: ConfigKeyInfo) -> tuple[str, str, str, str]:
    return info.name, info.type.lower(), default_of(info), info.importance.lower()


def _table(infos: Sequence[ConfigKeyInfo]) -> str:
    lines = [
        "| option | type | default | importance | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for info in infos:
        name, kind, default, importance = _row(info)
        shown = f"`{default}`" if info.default_value else default
        meaning = " ".join(info.documentation.split()).replace("|", "\\|")
        lines.append(f"| `{name}` | {kind} | {shown} | {importance} | {meaning} |")
    return "\n".join(lines)
