"""The commands for a council that keeps running: up, down, status, watch, budget, top, dashboard, cluster."""
