"""The same job by the council and by other frameworks, each in an environment of its own."""
