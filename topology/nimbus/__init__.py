"""The life of topologies: their states, and the manager that carries out commands."""
