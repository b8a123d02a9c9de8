"""Councils on Ray: all modules that import Ray."""
