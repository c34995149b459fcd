"""Input of DSkype: records, text and vocabulary, settings, and the two Kafka spouts."""
