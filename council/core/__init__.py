"""The rules, as pure functions: no clock, no Ray, no files, no network. Read ``step`` first."""
