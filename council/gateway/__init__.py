"""What is served over HTTP: the live panel, and the server of panel and metrics. Decides nothing."""
