"""The kinds of events: one row for each in one table."""
