"""Metrics, event log and traces of a council. Changes nothing."""
