"""Config providers by name: Apache's three, and those that installed distributions announce.

`config.providers` names them, ``config.providers.NAME.class`` says what each is, and
``config.providers.NAME.param.KEY`` sets its parameters. A class is named as in Java, by its short
name, by an entry point of the group ``headgate.config_providers``, or as ``package.module:Class``.
Source: KIP-297, KIP-421, KIP-887, KIP-993.

Differs: a path outside of `allowed.paths` is an error. Java leaves the reference as it stands, so
that a connector would take it for the value. Blanks around names are ignored.
"""

import inspect
import os
from collections.abc import Collection, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from headgate.connector.config_providers import ConfigProvider, ConfigProviderError
from headgate.java.pattern import JavaPatternError, compile_java
from headgate_runtime.plugins.importing import NotImportedError, import_class

KEY: Final = "config.providers"
PREFIX: Final = f"{KEY}."
GROUP: Final = "headgate.config_providers"
_JAVA: Final = "org.apache.kafka.common.config.provider."


class AllowedPaths:
    """The paths that `allowed.paths` lets a provider read. Source: `AllowedPaths`. Symbolic links
    are not resolved for the check, because secrets are often mounted as links."""

    def __init__(self, text: str) -> None:
        """Take absolute paths of files and folders, separated by commas. Empty: all paths are
        allowed."""
        self._allowed = tuple(
            Path(os.path.normpath(part.strip())) for part in text.split(",") if part.strip()
        )
        for path in self._allowed:
            if not path.is_absolute():
                raise ConfigProviderError(f"allowed.paths: {path} is not absolute")
            if not path.exists():
                raise ConfigProviderError(f"allowed.paths: {path} does not exist")

    def checked(self, path: str) -> Path:
        if not self._allowed:
            return Path(path)
        normal = Path(os.path.normpath(path))
        if not any(normal.is_relative_to(allowed) for allowed in self._allowed):
            inside = ", ".join(map(str, self._allowed))
            raise ConfigProviderError(f"the path is outside of allowed.paths, {inside}")
        return normal


class _OfPaths(ConfigProvider):
    """A provider that reads files, as far as `allowed.paths` permits."""

    def __init__(self) -> None:
        self._paths = AllowedPaths("")

    def configure(self, params: Mapping[str, str]) -> None:
        self._paths = AllowedPaths(params.get("allowed.paths", ""))


class FileConfigProvider(_OfPaths):
    """Provider of the keys of a UTF-8 properties file:
    ``${file:/run/secrets.properties:password}``."""

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if not path:
            return {}
        try:
            import javaproperties
        except ModuleNotFoundError:
            needed = (
                'reads properties files, which needs headgate[kafka]: pip install "headgate[kafka]"'
            )
            raise ConfigProviderError(f"FileConfigProvider {needed}") from None
        text = _read(self._paths.checked(path))
        try:
            values = javaproperties.loads(text)
        except javaproperties.InvalidUEscapeError:  # the error's text quotes the file
            raise ConfigProviderError("the file has a malformed \\uxxxx escape") from None
        return {key: values[key] for key in keys if key in values}


class DirectoryConfigProvider(_OfPaths):
    """Provider of files in a folder, each a whole value: ``${directory:/run/secrets:password}``."""

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if not path:
            return {}
        folder = self._paths.checked(path)
        # A key is the name of a file in the folder, and no path.
        names = {key: folder / key for key in keys if key == Path(key).name}
        return {key: _read(file) for key, file in names.items() if file.is_file()}


class EnvVarConfigProvider(ConfigProvider):
    """Provider of environment variables of the worker: ``${env:PASSWORD}``. `allowlist.pattern`
    must match the whole name."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._allowed = compile_java(".*")

    def configure(self, params: Mapping[str, str]) -> None:
        pattern = params.get("allowlist.pattern", ".*")
        try:
            self._allowed = compile_java(pattern)
        except JavaPatternError as error:
            raise ConfigProviderError(f"allowlist.pattern: {pattern!r}: {error}") from None

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if path:
            raise ConfigProviderError(
                "environment variables have no path; write ${provider:VARIABLE}"
            )
        return {
            key: self._environment[key]
            for key in keys
            if key in self._environment and self._allowed.match(key)
        }


CLASSES: Final[Mapping[str, type[ConfigProvider]]] = {
    f"{_JAVA}{kind.__name__}": kind
    for kind in (FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider)
}


def pipeline_providers() -> dict[str, ConfigProvider]:
    """Return the providers that a pipeline file need not name: ``file``, ``directory`` and
    ``env``."""
    return {
        "file": FileConfigProvider(),
        "directory": DirectoryConfigProvider(),
        "env": EnvVarConfigProvider(),
    }


def open_providers(
    properties: Mapping[str, str], problems: dict[str, str]
) -> dict[str, ConfigProvider]:
    """Return the providers that a worker's properties name, configured, by name.

    Args:
        problems: gets the errors, by key. A provider with an error is left out.
    """
    opened: dict[str, ConfigProvider] = {}
    for name in _names(properties):
        prefix, key = f"{PREFIX}{name}.param.", f"{PREFIX}{name}.class"
        params = {
            each.removeprefix(prefix): value
            for each, value in properties.items()
            if each.startswith(prefix)
        }
        try:
            provider = find_provider(properties.get(key, ""))()
        except ConfigProviderError as error:
            problems[key] = str(error)
            continue
        except Exception as error:  # an author's own code
            problems[key] = f"it cannot be made: {type(error).__name__}: {error}"
            continue
        try:
            provider.configure(params)
        except ConfigProviderError as error:
            problems[key] = f"config provider {name}: {error}"
        except Exception as error:  # an author's own code, whose text may quote its parameters
            problems[key] = f"config provider {name}: configure raised {type(error).__name__}"
        else:
            opened[name] = provider
    return opened


def unused_keys(properties: Mapping[str, str]) -> list[str]:
    """Return keys of providers that `config.providers` does not name, or that nothing reads."""
    read = tuple(f"{PREFIX}{name}.param." for name in _names(properties))
    named = {f"{PREFIX}{name}.class" for name in _names(properties)}
    return [
        key
        for key in properties
        if key.startswith(PREFIX) and key not in named and not key.startswith(read)
    ]


def _names(properties: Mapping[str, str]) -> list[str]:
    parts = [part.strip() for part in properties.get(KEY, "").split(",")]
    return [name for name in dict.fromkeys(parts) if name]


def find_provider(name: str) -> type[ConfigProvider]:
    """Return the class that `name` means.

    Raises:
        ConfigProviderError: there is none, or it is no provider. The message lists the known ones.
    """
    name = name.strip()
    own = {point.name: point.value for point in sorted(entry_points(group=GROUP))}
    for known, kind in CLASSES.items():
        if name and name in (known, kind.__name__):
            return kind
    target = own.get(name) or (name if ":" in name else None)
    if target is None:
        seen = f"there is no config provider {name}" if name else "the provider's class is missing"
        raise ConfigProviderError(f"{seen}; there are {', '.join((*CLASSES, *own))}")
    try:
        found = import_class(target, quoted=False)
    except NotImportedError as error:
        raise ConfigProviderError(f"{target} cannot be imported: {error}") from None
    if not (inspect.isclass(found) and issubclass(found, ConfigProvider)):
        raise ConfigProviderError(f"{target} is no subclass of headgate's ConfigProvider")
    return found


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:  # the error's text quotes a byte of the file
        raise ConfigProviderError(f"{path} is not in UTF-8") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigProviderError(f"{path} cannot be read: {reason}") from None
