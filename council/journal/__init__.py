"""The journal: records of all events, in a database or in memory."""
