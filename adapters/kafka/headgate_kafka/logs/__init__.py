"""The internal topics on Kafka: reading, writing, claiming, and the stores of source offsets."""
