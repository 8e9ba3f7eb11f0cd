from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from foretell.graph.nodes import Array
from foretell.ir.tensor_expr import Buffer, Const, Load, Scalar
from foretell.loops.nodes import map_loads
from foretell.loops.stages import TensorStage


def put_numbers(stages: Sequence[TensorStage], constants: Mapping[str, Array]) -> list[TensorStage]:
    """Numbers in the place of loads of constants that have one element.

    before: y[i] = min(max(x[i], low[]), high[])
    after:  y[i] = min(max(x[i], 0.0), 6.0)          each one instruction, because neither number is NaN

    declines when: the constant is NaN or no float.
    """
    numbers: dict[str, float] = {}
    for name, array in constants.items():
        if array.size == 1 and array.dtype.kind == "f" and array.item() == array.item():
            numbers[name] = array.item()

    def number(load: Load) -> Scalar:
        if isinstance(load.source, Buffer) and load.source.name in numbers:
            return Const(numbers[load.source.name], load.dtype)
        return load

    return [replace(stage, body=map_loads(stage.body, number)) for stage in stages] if numbers else list(stages)
