"""What a load needs in hosts, brokers, partitions, network and memory, from measured costs."""
