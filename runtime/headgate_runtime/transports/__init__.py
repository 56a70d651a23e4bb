"""Which adapter carries a worker's logs, group and calls."""
