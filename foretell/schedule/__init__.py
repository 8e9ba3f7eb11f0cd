"""Stage 5: a plain loop nest and a schedule in, a nest that does the same faster out."""
