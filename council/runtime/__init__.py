"""Runs a council, on Ray or in process. The rules are in ``council.core``."""
