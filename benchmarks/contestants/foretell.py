"""foretell itself, bound to inputs and outputs that are in place."""

from __future__ import annotations

from functools import cache

import foretell
from benchmarks.contestants import SAVED_SUFFIX, Job, Runner


def prepare(job: Job) -> Runner:
    make = foretell.load if job.model.suffix == SAVED_SUFFIX else foretell.compile
    model = make(job.model, threads=job.threads)
    bound = cache(lambda: model.bind(job.feeds))  # by the first call, which runs the model to make the outputs
    return Runner(lambda: bound()(), lambda: list(bound().outputs.values()), model.save)
