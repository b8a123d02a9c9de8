"""What a council is configured with, and where each value comes from."""
