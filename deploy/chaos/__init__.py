"""The fault suite: a topology runs on real Spark and Kafka, one thing after another breaks, and everything that came out is checked.

``schedule`` draws what happens from a seed, ``faults`` does it and heals it, ``system`` is what runs (the command line in a process of
its own, and a broker), ``workloads`` feeds and checks it, ``run`` brings them together, ``report`` is the table at the end. ``soak`` looks
at what grows over time. ``python -m dskype.deploy.chaos -h`` has the options.
"""
