"""``connector.client.config.override.policy``: which client settings a connector may override.

Source: KIP-458, KIP-1188; AbstractConnectorClientConfigOverridePolicy and its four subclasses.
"""

from collections.abc import Mapping

PREFIXES = ("producer.override.", "consumer.override.", "admin.override.")
PRINCIPAL_KEYS = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})


def override_errors(
    policy: str, connector_config: Mapping[str, str | None], allowed: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Return, by key, Connect's error message for each override that the policy refuses.

    Args:
        policy: All, None, Principal or Allowlist.
        allowed: keys, without prefix, that the policy Allowlist permits
            (``connector.client.config.override.allowlist``).
    """
    passes = {"None": frozenset[str](), "Principal": PRINCIPAL_KEYS, "Allowlist": allowed}
    if policy == "All":
        return {}
    errors = {}
    for key in connector_config:
        for prefix in PREFIXES:
            if key.startswith(prefix) and (name := key.removeprefix(prefix)) not in passes[policy]:
                errors[key] = (
                    f"The '{policy}' policy does not allow '{name}' to be overridden in the "
                    "connector configuration."
                )
    return errors
