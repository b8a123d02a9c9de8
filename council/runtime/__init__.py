"""Runs a council: on Ray, or in process. Holds no rule; those are in ``council.core``."""
