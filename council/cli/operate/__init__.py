"""The commands for a council that stays: up, down, status, watch, budget, top, dashboard, cluster."""
