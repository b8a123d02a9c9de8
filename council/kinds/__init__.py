"""What there is to know of each kind of event: one row in one table."""
