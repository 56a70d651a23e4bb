"""What Connect's internal topics hold: configs, statuses, offsets, as events and as state."""
