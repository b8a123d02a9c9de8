"""Councils on Ray: all that imports Ray. Decides nothing."""
