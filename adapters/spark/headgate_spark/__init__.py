"""Tasks on Spark executors, and sinks whose batches are planned and run as Spark jobs."""
