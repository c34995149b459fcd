"""The life of topologies: which state follows which command, and who carries it out."""
