"""The plugin of pytest: ``pytest_plugins = ["headgate.testing.plugin"]`` in a conftest.

See docs/build/testing.md. It is loaded by tests that name it, and by nothing else.
"""

from importlib import import_module

_plugin = import_module("headgate_runtime.testing.plugin")
globals().update({name: getattr(_plugin, name) for name in ("__all__", *_plugin.__all__)})
