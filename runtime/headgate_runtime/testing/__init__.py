"""What `headgate.testing` gives to authors of connectors.

It is here and not in the core, because it runs the task bodies that ship, which are the runtime's.
"""
