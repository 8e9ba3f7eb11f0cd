"""Measuring the machine itself: what its cores, caches and memory really do."""
