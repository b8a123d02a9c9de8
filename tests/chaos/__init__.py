"""Real faults on real processes and disks: what was told must be kept, once and unchanged (rules 4.7, 1.12)."""
