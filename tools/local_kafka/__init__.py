"""Apache Kafka on this machine: one broker, Java Connect workers; for trying and tests."""
