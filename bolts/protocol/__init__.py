"""How distribution, subscription and result tasks talk about subscriptions that live on several tasks.

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

Tasks of one bolt talk, too: distribution tasks on ``interest``, where they summarize; subscription tasks on ``transfers``, where boolean subscriptions move. Load balancing
measures on ``balance``.

Each message is a named tuple. The modules here turn it into the plain value that travels on the stream, and back; no other code knows the form on the wire. Where the
distributor does not replicate, ``placements`` has the bare subscription (:mod:`dskype.distribution.subscriptions`), or None to unregister, and there are no other messages.

Each bolt has a room for its part. It chooses one of the strategies there in ``prepare``:

============  ====================  =====================================  ==========================================================
bolt          room                  a subscription lives on one task        it may live on several
============  ====================  =====================================  ==========================================================
distribution  ``bolts/placement``   ``SinglePlacement``                     ``ReplicatedPlacement``; with summaries ``SummarizedPlacement``
subscription  ``bolts/ownership``   ``SingleOwner``                         ``ReplicatedOwner``
result        ``bolts/merging``     ``SingleResults``                       ``ReplicatedResults``
============  ====================  =====================================  ==========================================================

``docs/concepts/distribution.md``, section "Replication", has a worked example; :mod:`dskype.bolts.ownership.replicas` explains why merged lists are exact.
"""
