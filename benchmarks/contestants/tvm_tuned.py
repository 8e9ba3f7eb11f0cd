"""TVM with MetaSchedule: it measures candidates on this machine for a budget of trials before it takes part.

BENCHMARKS_TVM_TRIALS is the budget of a case; getting ready takes about a second for each trial.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from benchmarks.contestants import Job, Runner
from benchmarks.contestants.tvm import make_runner

VARIABLE = "BENCHMARKS_TVM_TRIALS"
DEFAULT_TRIALS = 64


def prepare(job: Job) -> Runner:
    trials = int(os.environ.get(VARIABLE, DEFAULT_TRIALS))
    folder = str(job.scratch / "tuning")
    return make_runner(job, lambda module, target: _tune(module, target, folder, trials))


def _tune(module: Any, target: Any, folder: str, trials: int) -> Any:
    tvm, relax = import_module("tvm"), import_module("tvm.relax")
    schedule = import_module("tvm.s_tir.meta_schedule")
    is_tuned = os.path.exists(folder)
    os.makedirs(folder, exist_ok=True)
    evaluator = schedule.runner.EvaluatorConfig(number=1, repeat=1, min_repeat_ms=30, enable_cpu_cache_flush=False)
    rules = schedule.space_generator.PostOrderApply(sch_rules="llvm", postprocs="llvm", mutator_probs="llvm")
    with target, tvm.transform.PassContext(opt_level=3):
        module = relax.get_pipeline("zero")(module)
        if not is_tuned:
            schedule.relax_integration.tune_relax(
                module, {}, target, folder, max_trials_global=trials, num_trials_per_iter=min(64, trials),
                runner=schedule.runner.LocalRunner(timeout_sec=10, evaluator_config=evaluator),
                builder=schedule.builder.LocalBuilder(max_workers=1), cost_model="xgb", seed=0, space=rules,
            )  # fmt: skip
        return relax.transform.MetaScheduleApplyDatabase(folder)(module)
