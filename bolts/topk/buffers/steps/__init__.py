"""How buffers change: kernels only."""
