"""Telling the loops of a kernel apart in its assembly.

The branch of every loop gets a place in a source that does not exist: its line is the number of the loop in the kernel,
outer before inner, from 1; its column is how many iterations are done at a time. LLVM keeps it through rotation,
strength reduction and layout of blocks, prints it as `.loc`, and generates the same loops with it as without; on
AArch64 it saves registers at the start of a function in another order.
"""

from __future__ import annotations

import llvmlite.ir as ir

from foretell.codegen.types import I32
from foretell.ir.expr import Sym
from foretell.loops.nodes import Kernel, loops_in


class LoopMarks:
    """The places of one function's loops."""

    def __init__(self, function: ir.Function, kernel: Kernel) -> None:
        self.module = function.module
        self.numbers = {loop.sym: number for number, loop in enumerate(loops_in(kernel.body), 1)}
        self.scope = _describe(self.module, function)

    def mark(self, branch: ir.Value, sym: Sym, step: int) -> None:
        place = {"line": self.numbers[sym], "column": step, "scope": self.scope}
        branch.set_metadata("dbg", self.module.add_debug_info("DILocation", place))


def _describe(module: ir.Module, function: ir.Function) -> ir.Value:
    """What LLVM asks for before a function may have places at all."""
    file = module.add_debug_info("DIFile", {"filename": "loops", "directory": ""})
    unit = module.add_debug_info(
        "DICompileUnit",
        {
            "language": ir.DIToken("DW_LANG_C"),
            "file": file,
            "isOptimized": True,
            "emissionKind": ir.DIToken("LineTablesOnly"),
        },
        is_distinct=True,
    )
    if "llvm.dbg.cu" not in module.namedmetadata:
        version = [ir.Constant(I32, 2), "Debug Info Version", ir.Constant(I32, 3)]
        module.add_named_metadata("llvm.module.flags", version)
    module.add_named_metadata("llvm.dbg.cu", unit)
    type = module.add_debug_info("DISubroutineType", {"types": module.add_metadata([])})
    scope = module.add_debug_info(
        "DISubprogram",
        {"name": function.name, "file": file, "line": 0, "type": type, "unit": unit, "isOptimized": True},
        is_distinct=True,
    )
    function.set_metadata("dbg", scope)
    return scope
