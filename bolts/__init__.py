"""The bolts of DSkype. The packages ``topk``, ``boolean`` and ``window`` are libraries over arrays that know nothing of topologies."""

from dskype.topology.core.kernel_cache import compare_imported_kernels

compare_imported_kernels()
