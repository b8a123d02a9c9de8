"""The commands for what is on the record: log, show, replay, verify, checkpoint, prove, store."""
