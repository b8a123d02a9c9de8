"""The commands that read the journal: log, show, replay, verify, checkpoint, prove, store."""
