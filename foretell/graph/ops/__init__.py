"""Stage 2: the op table: for each canonical operator its types, its shapes and its definition."""
