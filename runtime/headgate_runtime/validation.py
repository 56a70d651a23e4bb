"""What Connect would answer to a connector config: found with the plugin's own definitions."""

from headgate.connector.validation import (
    error_message,
    missing_class_message,
    validate_connector,
)
from headgate.events import Config
from headgate_runtime.plugins import PluginError, find_connector
from headgate_runtime.settings import WorkerSettings


def config_error(name: str, config: Config, settings: WorkerSettings) -> str | None:
    """Why the config of connector `name` is refused, in the words of Connect's answer 400; None if
    it is valid."""
    class_name = config.get("connector.class")
    if not class_name:
        return missing_class_message(config)
    try:
        connector = find_connector(class_name)
    except PluginError as error:
        return str(error)
    infos = validate_connector(
        connector,
        {**config, "name": name},
        worker_settings=settings.texts,
        exactly_once_enabled=settings["exactly.once.source.support"] == "enabled",
        runner=settings["headgate.task.runner"],
    )
    return error_message(infos) if infos.error_count else None
