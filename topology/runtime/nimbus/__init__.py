"""What drivers, standbys and commands tell each other in the nimbus topic, and who of them is alive."""
