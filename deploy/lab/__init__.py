"""The laboratory: everything that exists to repeat papers, to compare with them, and to measure.

``skype``, ``laps``, ``tornado`` and ``ps2stream`` have the indexes, windows and distributors of a paper that DSkype does not use by default, and the
paper's experiments: ``workload``, ``experiments`` with the claims, ``simulation``, ``report``, and ``run``, which ``dskype bench`` calls. ``dskype`` compares
the distribution mechanisms, ``boolean`` and ``topk`` compare indexes with one another. ``system`` measures DSkype on Spark, ``emulator`` the emulator alone, and ``chaos``
breaks what they run on.

The product never imports it. It finds the classes by their names, as entry points of this package (:mod:`dskype.topology.plugins`).
"""
