"""Stage 2: a graph of canonical tensor operators comes in; the same graph, simpler, goes out."""
