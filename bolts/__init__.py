"""The bolts of DSkype; the indexes below ``topk``, ``boolean`` and ``window`` are libraries over arrays."""
