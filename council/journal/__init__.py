"""Keeps the record of what happened. Knows nothing of its meaning."""
