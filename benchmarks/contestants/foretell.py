"""foretell itself, writing to outputs that are in place."""

from __future__ import annotations

import foretell
from benchmarks.contestants import Job, Runner


def prepare(job: Job) -> Runner:
    model = foretell.compile(job.model, threads=job.threads)
    outputs = {}

    def run() -> None:
        """The first call makes the arrays that later ones write to."""
        outputs.update(model.run(job.feeds, out=outputs))

    return Runner(run, lambda: list(outputs.values()), model.save)
