"""Stage 9: machine code and a program come in, a model that can be called goes out; knows no compiler stage."""
