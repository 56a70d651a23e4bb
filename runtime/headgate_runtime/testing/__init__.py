"""The test tools of `headgate.testing` for authors of connectors.

They are here and not in the core, because they run the real task bodies, which are the runtime's.
"""
