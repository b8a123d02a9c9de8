"""The commands about decisions: propose, review, escalations, answer, cancel, estimate, demo."""
