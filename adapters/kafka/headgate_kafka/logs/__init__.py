"""The internal topics on Kafka: read, written, claimed; and the stores of source offsets."""
