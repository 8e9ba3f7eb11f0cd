"""Stage 6: a loop nest, a schedule and a target in; the time that the code should take out, term by term."""
