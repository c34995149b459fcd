"""Where messages and subscriptions come from: record types, text and vocabulary, the Kafka spouts of DSkype."""
