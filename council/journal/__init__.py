"""Keeps the record of what happened."""
