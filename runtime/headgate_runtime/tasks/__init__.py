"""Where tasks run: one body for all runners, the lifeline, the runners themselves."""
