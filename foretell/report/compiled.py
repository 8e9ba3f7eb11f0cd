"""What `foretell compile` says of a compiled model: the memory it needs, its kernels, and where the time went."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from foretell.ir.expr import Sym
from foretell.report.flops import smallest
from foretell.report.tables import table
from foretell.report.units import plural, short_number
from foretell.runtime.session import CompiledModel
from foretell.support.stage_times import StageTimes


@dataclass(frozen=True, slots=True)
class CompiledReport:
    name: str
    target: str
    threads: int
    kernels: int
    fallback_operators: tuple[str, ...]
    code_bytes: int
    weight_bytes: int
    arena_bytes: int
    sample: dict[str, int]
    """What symbols stand for in `arena_bytes`: as little as may be."""
    stages_s: dict[str, float]

    def to_json(self) -> dict[str, object]:
        return {
            "model": self.name,
            "target": self.target,
            "threads": self.threads,
            "kernels": self.kernels,
            "reference_operators": list(self.fallback_operators),
            "code_bytes": self.code_bytes,
            "weight_bytes": self.weight_bytes,
            "arena_bytes": self.arena_bytes,
            "arena_at": self.sample,
            "stages_ms": {stage: seconds * 1e3 for stage, seconds in self.stages_s.items()},
            "compile_ms": sum(self.stages_s.values()) * 1e3,
        }

    def to_table(self) -> Table:
        at = ", ".join(f"{name} = {value}" for name, value in self.sample.items())
        rows: list[tuple[object, ...]] = [
            ("target", self.target),
            ("kernels", plural(self.kernels, "kernel") + f" in {short_number(self.code_bytes, 'B')} of code"),
            ("weights", short_number(self.weight_bytes, "B")),
            ("arena", short_number(self.arena_bytes, "B") + (f" where {at}" if at else "")),
        ]
        if self.fallback_operators:
            rows.append(("in Python", ", ".join(self.fallback_operators)))
        return table("", "", rows=rows)

    def stages_line(self) -> str:
        """How long each stage took: "compiled in 212 ms: import 3, simplify 2, ..."."""
        stages = ", ".join(f"{stage} {seconds * 1e3:.0f}" for stage, seconds in self.stages_s.items())
        return f"compiled in {sum(self.stages_s.values()) * 1e3:.0f} ms: {stages}"


def describe_compiled(model: CompiledModel, times: StageTimes) -> CompiledReport:
    sample = sample_values(model)
    return CompiledReport(
        name=model.program.name,
        target=model.target.resolved,
        threads=model.threads,
        kernels=model.program.kernel_count,
        fallback_operators=model.program.fallback_operators,
        code_bytes=model.code_bytes,
        weight_bytes=model.weight_bytes,
        arena_bytes=model.arena_bytes(sample),
        sample={symbol.name: value for symbol, value in sample.items()},
        stages_s=dict(times.seconds),
    )


def sample_values(model: CompiledModel) -> dict[Sym, int]:
    """The smallest positive number that each of the model's symbols may stand for."""
    return {symbol: value for symbol, value in smallest(model.program.symbols).items() if isinstance(value, int)}
