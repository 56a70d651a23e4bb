"""Resolves references in the configs of connectors and tasks, before plugins get the configs.

The config topic, the herder and the REST API have configs as users wrote them. Instances, tasks and
validations get them through `resolve`, and texts that come from plugins go through `hide`.
Providers are asked anew each time, so a restart gets current values. Source:
WorkerConfigTransformer, AppliedConnectorConfig.

Differs: nothing is restarted because a value has a time to live (none of Apache's providers gives
one). Values do not show in answers to validations.
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
    """Values to hide, as in `Transformed.found`."""

    def hide(self, text: str) -> str:
        return HiddenValues(self.found.items()).hide(text)


class WorkerConfigTransformer:
    """Transformer of one worker's configs. Safe for several threads, as providers are."""

    def __init__(self, providers: Mapping[str, ConfigProvider] | None = None) -> None:
        self._providers = dict(providers or {})
        self._salt = secrets.token_bytes(32)

    def resolves(self, config: Config) -> bool:
        """Return whether `config` refers to one of the providers. If not, `resolve` returns it as
        it is."""
        return bool(self._providers) and any(
            reference.provider in self._providers
            for value in config.values()
            for reference in references(value)
        )

    def resolve(self, config: Config, of: str) -> ResolvedConfig:
        """Return `config` with references replaced by values.

        Args:
            of: the owner of the config, for the log.

        Raises:
            ConfigProviderError: a provider could not answer.
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
        """Return a digest that tells two resolved configs apart within this process. It is salted,
        so it reveals nothing elsewhere."""
        text = json.dumps(dict(config), sort_keys=True)
        return hmac.new(self._salt, text.encode(), hashlib.sha256).hexdigest()

    def close(self) -> None:
        for name, provider in self._providers.items():
            try:
                provider.close()
            except Exception as error:  # an author's own code
                log.warning("config provider %s did not close: %s", name, type(error).__name__)


NO_PROVIDERS = WorkerConfigTransformer()
"""Transformer that leaves every reference as it is."""
