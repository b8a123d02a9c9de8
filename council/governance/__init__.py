"""Governed action (OMEN): the episode machine, its invariants, ledger and tokens. Pure, as the core is."""
