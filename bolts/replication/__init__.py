"""Subscriptions that live on several tasks: who places them, who keeps their replicas, who merges what these find.

::

                      placements: Placement, Epoch, End, Survey, PlanMarker, AllMoved
      distribution  ----------------------------------------------------------------->  subscription
      task          <-----------------------------------------------------------------  tasks (replicas)
      (owner)              shortages: ReplicaReport      switched: plan in force             |
         |                                                                                   |
         |                                     results: deltas  lists: ReplicaList, Dropped, Gone
         |   registrations: Begin, Finish                                                    v
         +-------------------------------------------------------------------------->  result task
                                                                                       (merges by claims)

=====================  =======================================  ==========================================================
bolt                   strategy for one task per subscription    strategy for several
=====================  =======================================  ==========================================================
distribution           ``placement.PlacementStrategy``           ``replicated_placement.ReplicatedPlacement``, ``registry``
subscription           ``ownership.SingleOwner``                 ``replicated_owner.ReplicatedOwner`` with ``replicas``,
                                                                 ``boolean_placements`` and ``coverage``
result                 ``merging.ResultStrategy``                ``merging.MergedResults`` with ``merger``,
                                                                 ``replicated_subscription`` and ``fast_lists``
=====================  =======================================  ==========================================================

``messages`` has everything that travels between them. A worked example is in ``docs/distribution.md``, section "Replication"; why
merged lists are exact is in :mod:`dskype.bolts.replication.replicas`.
"""
