"""The settings of a council, and where each value comes from."""
