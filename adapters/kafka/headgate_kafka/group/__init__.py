"""The group port on Kafka: requests to the coordinator of the workers' group."""
