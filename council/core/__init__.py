"""Decides. Knows nothing of clocks, Ray, files or the network: start reading at ``step``."""
