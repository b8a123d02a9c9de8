"""Actions: tools, the sandbox that commands run in, and the tools that are built in."""
