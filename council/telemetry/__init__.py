"""Metrics, event log, traces and notices of a council. They never change it."""
