"""Settings of workers and connectors: keys, defaults, properties files, config providers."""
