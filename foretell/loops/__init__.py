"""Stage 4: groups of graph nodes come in, loop nests over buffers go out."""
