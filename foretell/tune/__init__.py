"""Measuring what is otherwise predicted: schedules of a model's nests, on this machine, for as long as one likes."""
