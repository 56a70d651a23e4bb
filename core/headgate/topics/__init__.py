"""Connect's internal topics (configs, statuses, source offsets): their records as events, and the
state that the events make."""
