"""The pipeline, one line per step: read this first.

import_model        ONNX file -> graph of canonical operators     (frontend/)
simplify            graph -> smaller graph, same results           (graph/rewrites/)
choose_algorithms   graph -> sums of products in their fastest form (search/)
link_program        graph -> loop nests -> machine code -> model   (loops/, partition/, codegen/, runtime/)
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

from foretell.frontend.import_onnx import Imported, Shapes, Source, Values, import_onnx
from foretell.frontend.read_onnx import StoredModel, read_onnx
from foretell.graph.control_flow import is_control_flow
from foretell.graph.nodes import Graph
from foretell.graph.simplify import simplify
from foretell.link_program import Lowered, is_native, link_program, lower_program
from foretell.runtime.session import CompiledModel
from foretell.runtime.specialise import Specialiser
from foretell.search.choose_algorithms import choose_algorithms
from foretell.search.records import try_records
from foretell.support.errors import NotNative, UsageError
from foretell.support.limits import DEFAULT_LIMITS, DEFAULT_WINOGRAD_ERROR, Limits
from foretell.support.progress import Steps
from foretell.support.stage_times import StageTimes
from foretell.target.resolve import resolve_target
from foretell.target.threads import default_threads

__all__ = ["Lowered", "choose_algorithms", "compile", "import_model", "link_program", "lower_program", "simplify"]


def compile(
    source: Source | StoredModel,
    *,
    target: str = "native",
    threads: int | None = None,
    shapes: Shapes | None = None,
    values: Values | None = None,
    native_only: bool = False,
    winograd_error: float = DEFAULT_WINOGRAD_ERROR,
    limits: Limits = DEFAULT_LIMITS,
    progress: Steps | None = None,
    times: StageTimes | None = None,
) -> CompiledModel:
    """A model as machine code: call the result with arrays, or save it. The target need not be this machine.

    `threads` defaults to what this process may use; `shapes` binds symbolic dimensions of inputs, and `values` whole
    inputs; `times` learns how long each stage took. What has no native code runs on the reference of the onnx package
    and is warned of; `native_only` refuses it. Where small inputs tell what an operator needs to know (axes, sizes),
    the model is compiled again, natively, for the values that it is called with.

    Schedules that `foretell tune` measured on this CPU with as many threads are used where they were clearly faster.
    Convolutions may be computed by Winograd's minimal filtering, and products in pairs or by quarters, if the error to
    expect, relative to a layer's greatest result, is at most `winograd_error`; 0 forbids all of these.
    """
    _check_error(winograd_error)
    resolved = resolve_target(target)
    times = StageTimes() if times is None else times
    with times.measure("import"):
        stored = source if isinstance(source, StoredModel) else read_onnx(source, limits)
        imported = _import(stored, shapes, values, limits, progress)
    with times.measure("simplify"):
        graph = choose_algorithms(simplify(imported.require_graph()), resolved.spec, winograd_error)
    slow = reference_operators(graph)
    specialising = imported.specialising if slow else ()
    if slow and not specialising:
        _report_reference(slow, native_only)
    if progress is not None:
        progress.step("compile", f"{len(graph.nodes)} nodes for {resolved}")
    count = default_threads() if threads is None else threads
    with nullcontext() if (records := try_records(resolved, count)) is None else records:
        model = link_program(graph, resolved, count, times, None if records is None else records.try_best)
    if specialising:
        again = partial(
            compile,
            stored,
            target=target,
            threads=threads,
            shapes=shapes,
            native_only=native_only,
            winograd_error=winograd_error,
            limits=limits,
        )
        model.specialiser = Specialiser(
            model.inputs, specialising, lambda found: again(values={**(values or {}), **found})
        )
    return model


def _check_error(winograd_error: float) -> None:
    if not winograd_error >= 0:
        raise UsageError(
            "the error allowed to Winograd's minimal filtering is no number that errors can stay below",
            expected="0, which forbids it, or more",
            got=str(winograd_error),
            hint="leave winograd_error out",
        )


def import_model(
    source: Source,
    *,
    shapes: Shapes | None = None,
    values: Values | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Steps | None = None,
) -> Graph:
    """Read, check and translate a model; `UnsupportedOperators` names every node that cannot be run."""
    return _import(source, shapes, values, limits, progress).require_graph()


def _import(
    source: Source | StoredModel,
    shapes: Shapes | None,
    values: Values | None,
    limits: Limits,
    progress: Steps | None,
) -> Imported:
    if progress is not None:
        progress.step("import")
    return import_onnx(source, shapes=shapes, values=values, limits=limits)


def reference_operators(graph: Graph) -> tuple[str, ...]:
    """Operators of a graph that have no native code and run on the ONNX reference."""
    slow = [node for node in graph.walk() if not is_native(node) and not is_control_flow(node)]
    return tuple(sorted({str(node.attrs.get("op_type", node.op)) for node in slow}))


def _report_reference(names: Sequence[str], native_only: bool) -> None:
    """Warn of operators without native code, or refuse them."""
    if native_only:
        raise NotNative(
            "the model needs operators that have no native code",
            expected="operators that foretell compiles",
            got=", ".join(names),
            hint="leave native_only out to run them on the slow reference path",
        )
    warnings.warn(f"these operators run on the slow reference path: {', '.join(names)}", stacklevel=3)
