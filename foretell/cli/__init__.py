"""The command line: thin commands over the API."""
