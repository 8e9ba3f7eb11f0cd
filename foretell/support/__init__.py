"""Level 0: errors, limits, progress and the trace of passes, for every stage to use."""
