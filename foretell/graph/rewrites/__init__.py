"""Stage 2: rewrites graph -> graph, one law per file."""
