"""The commands for settings: init, config, doctor, identity."""
