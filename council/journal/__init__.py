"""Keeps the record of what happened. Knows nothing of what it means."""
