"""What foretell knows about a model, for a terminal or a machine to read."""
