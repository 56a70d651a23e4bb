"""The pytest plugin: ``pytest_plugins = ["headgate.testing.plugin"]`` in a conftest.

See docs/build/testing.md. Only tests that name it load it.
"""

from importlib import import_module

_plugin = import_module("headgate_runtime.testing.plugin")
globals().update({name: getattr(_plugin, name) for name in ("__all__", *_plugin.__all__)})
