"""Settings of Kafka clients, from Java's properties to librdkafka's."""
