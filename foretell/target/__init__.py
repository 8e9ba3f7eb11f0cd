"""Level 0: what is known about a CPU: its numbers, its instruction set, the threads it gives us."""
