"""Stage 7: the nests of a program in, those that become one kernel together out."""
