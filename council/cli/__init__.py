"""The command line: one face of the council. Holds no rule; see ``council.cli.app``."""
