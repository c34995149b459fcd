"""The fault suite: break things while a topology runs on real Spark and Kafka, and check its whole output.

``schedule`` draws faults from a seed, ``faults`` has the faults, ``system`` is what runs (the command line in its own process, and a broker), ``workloads`` feed it and
check its output, ``clients`` live through the faults and have to work again, ``run`` combines all of them, and ``report`` is the table at the end. ``soak`` looks for things
that grow over time. ``python -m dskype.deploy.lab.chaos -h`` lists the options.
"""
