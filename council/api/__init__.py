"""The Python API. It decides nothing: ``council.core`` has the rules."""
