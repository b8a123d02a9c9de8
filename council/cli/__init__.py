"""The command line. It decides nothing. Begin with ``council.cli.app``."""
