"""The files of a new project. Either all are made, or none."""

import importlib.util
import keyword
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from headgate_runtime.command import project_files as files

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
NAME_LENGTH_MAX = 50


class ProjectError(Exception):
    """The project cannot be made. The message is for the user."""


def make_project(name: str, kind: str, folder: Path) -> Path:
    """Make the project `name` in `folder`. Return its folder.

    Args:
        kind: "source" or "sink".

    Raises:
        ProjectError: the name is invalid, the project's folder exists, or the disk refuses.
    """
    problem = name_problem(name)
    if problem:
        raise ProjectError(f"nothing was made: {problem}")
    root = folder / name
    try:
        root.mkdir()
    except FileExistsError:
        raise ProjectError(
            f"nothing was made: {root} is there already, and is left as it is. Choose another "
            "name, or another --folder"
        ) from None
    except OSError as error:
        raise ProjectError(f"nothing was made: {root}: {error.strerror}") from None
    try:
        for path, text in _files(name, kind):
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(root, ignore_errors=True)
        raise ProjectError(f"nothing was made: {error.filename}: {error.strerror}") from None
    return root


def name_problem(name: str) -> str:
    """Return why a project cannot have this name. Empty: it can."""
    if not NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")
        hint = f", such as {near}" if NAME.fullmatch(near) else ""
        return (
            f"the name {name!r} is not one of lower case letters, digits and single hyphens, "
            f"beginning with a letter{hint}"
        )
    if len(name) > NAME_LENGTH_MAX:
        return f"the name has {len(name)} characters, expected {NAME_LENGTH_MAX} at most"
    package = package_of(name)
    hint = f"choose another name, such as {name}-connector"
    if keyword.iskeyword(package):
        return f"{package} is a word of Python and no name of a package: {hint}"
    if package in sys.stdlib_module_names:
        return f"{package} is a module of Python, which the project would hide: {hint}"
    if package.partition("_")[0] == "headgate":
        return "names that begin with headgate are Headgate's own: choose another name"
    if importlib.util.find_spec(package) is not None:
        return f"the package {package} is installed, and the project would hide it: {hint}"
    return ""


def package_of(name: str) -> str:
    """Return the package of a project: ``acme-queue`` -> ``acme_queue``."""
    return name.replace("-", "_")


def _files(name: str, kind: str) -> Iterator[tuple[str, str]]:
    package = package_of(name)
    words = {
        "NAME": name,
        "PACKAGE": package,
        "KIND": kind,
        "STEM": "".join(part.capitalize() for part in name.split("-")),
        "SUFFIX": kind.capitalize(),
    }
    of_kind = files.SOURCE if kind == "source" else files.SINK
    for path, text in {**files.COMMON, **of_kind}.items():
        yield _filled(path, words), _filled(text, words)


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(f"%{word}%", value)
    return text
