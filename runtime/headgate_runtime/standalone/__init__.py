"""A standalone worker: its answers, and the file of its source offsets."""
