"""The pipeline, one line per step: read this first.

    import_model   ONNX file -> graph of canonical operators     (frontend/)
    simplify       graph -> smaller graph, same results           (graph/rewrites/)
    link_program   graph -> loop nests -> machine code -> model   (loops/, codegen/, runtime/)
"""

from __future__ import annotations

import warnings

from foretell.frontend.import_onnx import Shapes, Source, import_onnx
from foretell.graph.control_flow import is_control_flow
from foretell.graph.nodes import Graph
from foretell.graph.simplify import simplify
from foretell.link_program import is_native, link_program
from foretell.runtime.session import CompiledModel
from foretell.support.limits import DEFAULT_LIMITS, Limits
from foretell.support.progress import Steps
from foretell.support.stage_times import StageTimes
from foretell.target.resolve import resolve_target
from foretell.target.threads import default_threads

__all__ = ["compile", "import_model", "simplify"]


def compile(
    source: Source,
    *,
    target: str = "native",
    threads: int | None = None,
    shapes: Shapes | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Steps | None = None,
    times: StageTimes | None = None,
) -> CompiledModel:
    """A model as machine code: call the result with arrays, or save it. The target need not be this machine.

    `threads` defaults to what this process may use; `shapes` binds symbolic dimensions of inputs; `times` learns how
    long each stage took.
    """
    resolved = resolve_target(target)
    times = StageTimes() if times is None else times
    with times.measure("import"):
        graph = import_model(source, shapes=shapes, limits=limits, progress=progress)
    with times.measure("simplify"):
        graph = simplify(graph)
    _warn_of_reference(graph)
    if progress is not None:
        progress.step("compile", f"{len(graph.nodes)} nodes for {resolved}")
    return link_program(graph, resolved, default_threads() if threads is None else threads, times)


def import_model(
    source: Source, *, shapes: Shapes | None = None, limits: Limits = DEFAULT_LIMITS, progress: Steps | None = None
) -> Graph:
    """Read, check and translate a model; `UnsupportedOperators` names every node that cannot be run."""
    if progress is not None:
        progress.step("import")
    return import_onnx(source, shapes=shapes, limits=limits).require_graph()


def reference_operators(graph: Graph) -> tuple[str, ...]:
    """Operators of a graph that have no native code and run on the ONNX reference."""
    slow = [node for node in graph.walk() if not is_native(node) and not is_control_flow(node)]
    return tuple(sorted({str(node.attrs.get("op_type", node.op)) for node in slow}))


def _warn_of_reference(graph: Graph) -> None:
    names = reference_operators(graph)
    if names:
        warnings.warn(f"these operators run on the slow reference path: {', '.join(names)}", stacklevel=3)
