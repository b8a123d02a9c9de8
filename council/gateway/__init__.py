"""The live panel, and the HTTP server of panel and metrics."""
