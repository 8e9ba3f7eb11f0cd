"""Stage 7: a plain loop nest and a target in, the schedules that suit it and the one that should be fastest out."""
