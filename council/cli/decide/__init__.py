"""The commands by which something is decided: propose, review, escalations, answer, cancel, estimate, demo."""
