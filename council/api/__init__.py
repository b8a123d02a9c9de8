"""The Python API. Decides nothing."""
