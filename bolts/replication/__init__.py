"""Subscriptions that live on several tasks: placing them, keeping their replicas, and merging the results.

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
distribution           ``placement.PlacementStrategy``           ``replicated_placement.ReplicatedPlacement``, ``registry``; with
                                                                 summaries ``summarized_placement.SummarizedPlacement``, and
                                                                 ``interest_exchange`` between distribution tasks
subscription           ``ownership.SingleOwner``                 ``replicated_owner.ReplicatedOwner`` with ``replicas``,
                                                                 ``boolean_placements`` and ``coverage``
result                 ``merging.ResultStrategy``                ``merging.MergedResults`` with ``merger``,
                                                                 ``replicated_subscription`` and ``fast_lists``
=====================  =======================================  ==========================================================

``messages`` defines all messages that travel between them. ``docs/concepts/distribution.md``, section "Replication", has a worked example;
:mod:`dskype.bolts.replication.replicas` explains why merged lists are exact.
"""
