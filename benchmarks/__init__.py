"""Measures the council beside floors measured in the same run. Times alone say little on a shared machine."""
