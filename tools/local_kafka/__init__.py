"""Apache Kafka on this machine, for tests and trials: brokers and Java Connect workers."""
