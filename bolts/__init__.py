"""The bolts of DSkype. The packages ``topk``, ``boolean`` and ``window`` are libraries over arrays that know nothing of topologies."""
