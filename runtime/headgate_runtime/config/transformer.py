"""Resolves what the configs of connectors and tasks refer to, where they are given to plugins.

The config topic, the herder and the REST API have configs as users wrote them. Instances, tasks and
validations get them by way of `resolve`, and what they say of themselves goes through `hide`. Each
time providers are asked anew, so what is started anew gets what is so now. Source:
WorkerConfigTransformer, AppliedConnectorConfig.

Differs: nothing is started again because a value has a time to live (none of Apache's providers
gives one); values do not show in answers to validations.
"""

import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.connector.config_providers import (
    ConfigProvider,
    HiddenValues,
    references,
    transform,
)
from headgate.topics.config_events import Config
from headgate_runtime.config.hidden_values import hide_in_logs

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    config: Config
    found: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """What is to be hidden, as `Transformed.found`."""

    def hide(self, text: str) -> str:
        return HiddenValues(self.found.items()).hide(text)


class WorkerConfigTransformer:
    """Transformer of one worker's configs. Safe from several threads, as providers are."""

    def __init__(self, providers: Mapping[str, ConfigProvider] | None = None) -> None:
        self._providers = dict(providers or {})
        self._salt = secrets.token_bytes(32)

    def resolves(self, config: Config) -> bool:
        """Whether `config` refers to one of the providers: else it is its own resolution."""
        return bool(self._providers) and any(
            reference.provider in self._providers
            for value in config.values()
            for reference in references(value)
        )

    def resolve(self, config: Config, of: str) -> ResolvedConfig:
        """
        Args:
            of: whose config it is, for the log.

        Raises:
            ConfigProviderError: a provider could not say what it was asked.
        """
        if not self.resolves(config):
            return ResolvedConfig(config)
        done = transform(config, self._providers)
        for reference in done.missing:
            log.warning(
                "%s: %s stays as it is: config provider %s has no such key",
                of,
                reference.text,
                reference.provider,
            )
        hide_in_logs(done.found)
        return ResolvedConfig(done.config, done.found)

    def digest(self, config: Config) -> str:
        """Tells two resolved configs apart, within this process: it is salted, so that nothing can
        be learnt from it elsewhere."""
        text = json.dumps(dict(config), sort_keys=True)
        return hmac.new(self._salt, text.encode(), hashlib.sha256).hexdigest()

    def close(self) -> None:
        for name, provider in self._providers.items():
            try:
                provider.close()
            except Exception as error:  # an author's own code
                log.warning("config provider %s did not close: %s", name, type(error).__name__)


NO_PROVIDERS = WorkerConfigTransformer()
"""Leaves every reference as it stands."""
