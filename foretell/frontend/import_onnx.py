"""ONNX in, graph out: names become values, operators become canonical ones, nothing is optimised.

For each node, in this order:
  1. arithmetic on dimensions is done symbolically (`shape_values`), so shapes need no data;
  2. an importer of ours (`operators/`) turns it into canonical nodes, or declines;
  3. a model-local function, or the function body that ONNX itself gives the operator, is expanded;
  4. what is left becomes an `Onnx` node, run by the reference; if that cannot run it either, it is unsupported.
Everything unsupported is collected and reported at once. Limits are checked on types, before any data exists.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, defs
from onnx.checker import ValidationError
from onnx.defs import OpSchema
from onnx.shape_inference import InferenceError

from foretell.frontend.check_functions import FunctionKey, check_functions, function_called, functions_of, node_weight
from foretell.frontend.functions import try_function_body
from foretell.frontend.input_types import check_type, check_value, input_type
from foretell.frontend.mapped_files import quoted
from foretell.frontend.onnx_node import (
    OnnxNode,
    Unsupported,
    check_against_schema,
    check_input_types,
    object_array,
)
from foretell.frontend.onnx_types import DTYPE_OF_ONNX, dims_of_proto, named_dim
from foretell.frontend.operators import IMPORTERS
from foretell.frontend.opsets import OLDEST_OPSET, is_unchanged, model_opsets, opsets_of
from foretell.frontend.order_nodes import location_of, order_nodes, shortened
from foretell.frontend.parameters import Parameters, count_parameters
from foretell.frontend.read_onnx import StoredModel, read_onnx
from foretell.frontend.reference_node import NO_DEFINITION, has_reference, make_reference_node
from foretell.frontend.shape_values import MAX_KNOWN_ELEMENTS, try_shape_value
from foretell.graph.build import Builder
from foretell.graph.evaluate import evaluate_node
from foretell.graph.nodes import Array, Graph, Node, Value
from foretell.graph.optable import OPS
from foretell.ir import expr
from foretell.ir.dtypes import BOOL
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import TensorType, definition_points
from foretell.support.errors import (
    ConstantTooLarge,
    DuplicateName,
    EvaluationError,
    InvalidModel,
    InvalidNode,
    LimitExceeded,
    NestingTooDeep,
    TooManyNodes,
    TooManyOperands,
    UnsupportedOperators,
    UnsupportedType,
    UsageError,
)
from foretell.support.limits import DEFAULT_LIMITS, Limits

BAD_NODE = (ValueError, TypeError, LookupError, ArithmeticError, InferenceError, ValidationError)
"""What importers and inference raise when a node's attributes or operands make no sense."""
SMALL_ELEMENTS = 4096
"""Constants up to this size are computed during import, so that shapes which depend on them are known."""
SMALL_POINTS, ALL_SMALL_POINTS = 1 << 20, 1 << 25
"""Loop iterations that computing one of them, and all of them, may take."""
MAX_ORIGINS = 8
"""A value that depends on more small inputs of the model than this is not traced back to them."""
REPEATS = 8
"""How often the import of a loop's body may be repeated, on average over the model, to find the types it keeps."""
COPIED_BYTES = 16 << 20
"""Attributes that may be copied again and again, by functions that hold operators without a definition of ours."""

SPECIALISING_ELEMENTS = 64
"""Inputs up to this size, of rank 0 or 1, may be ones that the shapes of a model hang on: axes, sizes, counts."""

Source = str | os.PathLike[str] | bytes | ModelProto
Values = Mapping[str, Array]
Shapes = Mapping[str, Sequence[int | str | None]]


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """What became of one ONNX node: `status` is native, decomposed, reference, unsupported, or blocked.

    A blocked node reads what an unsupported one makes, so that more than its operator cannot be examined.
    """

    op_type: str
    domain: str
    location: str
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph and where it came from. `graph` is None when something is unsupported."""

    graph: Graph | None
    operators: tuple[OperatorUse, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[tuple[str, TensorType | None], ...]
    """By name; None where neither the import nor the model tells the type."""
    opsets: Mapping[str, int]
    parameters: Parameters
    specialising: tuple[str, ...]
    """Inputs whose values operators on the reference would have to know while importing: see `values`."""

    def require_graph(self) -> Graph:
        """The graph, or an error that names every unsupported node."""
        if self.graph is None:
            missing = tuple((use.location, use.reason) for use in self.operators if use.status == "unsupported")
            raise UnsupportedOperators(missing)
        return self.graph


def import_onnx(
    source: Source | StoredModel,
    *,
    shapes: Shapes | None = None,
    values: Values | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Imported:
    """Read a model and turn it into a graph of canonical operators.

    `shapes` binds dimensions of inputs: a number fixes one, a name renames it, None leaves it as it is.
    `values` makes inputs constants: the graph is for these values only, and does not take them any more.
    """
    stored = source if isinstance(source, StoredModel) else read_onnx(source, limits)
    proto = stored.proto
    functions = functions_of(proto)
    model = _Model(stored, limits, functions, check_functions(proto, functions, limits))
    scope = Scope(model, Builder(shortened(proto.graph.name) or "model"), model_opsets(proto))
    scope.import_inputs(proto.graph, shapes or {}, values or {})
    inputs = tuple(scope.builder.inputs)
    outputs = scope.import_body(proto.graph)
    names = [info.name for info in proto.graph.output]
    if not names:
        raise InvalidModel("the model has no outputs", expected="at least one", got="none", hint="export it again")
    return Imported(
        graph=None if outputs is None else scope.builder.finish(outputs, names),
        operators=tuple(model.operators),
        inputs=inputs,
        outputs=tuple((name, scope.try_type(name)) for name in names),
        opsets=scope.opsets,
        parameters=count_parameters(proto),
        specialising=tuple(value.name for value in inputs if value.name in model.specialising),
    )


@dataclass(slots=True)
class _Model:
    """What all scopes of one import share."""

    stored: StoredModel
    limits: Limits
    functions: Mapping[FunctionKey, FunctionProto]
    file_nodes: int
    """Nodes of the file, with its functions expanded."""
    operators: list[OperatorUse] = field(default_factory=list)
    node_count: int = 0
    repeated_nodes: int = 0
    tables: dict[Hashable, Array] = field(default_factory=dict)
    """Arrays that importers compute, by what they are: many nodes need the same."""
    table_bytes: int = 0
    copied: dict[int, NodeProto] = field(default_factory=dict)
    """Nodes whose attributes were copied into the graph; they are kept, as their identity is the key."""
    copied_bytes: int = 0
    fresh_dims: int = 0
    points_left: int = ALL_SMALL_POINTS
    specialising: set[str] = field(default_factory=set[str])
    """Inputs of the model that operators left to the reference asked the values of."""

    def fresh_dim(self) -> Sym:
        """A dimension that only the data will tell."""
        self.fresh_dims += 1
        return Sym(f"u{self.fresh_dims}", 0)

    def try_table(self, key: Hashable, size_bytes: int, make: Callable[[], Array]) -> Array | None:
        """The array that `make` computes, shared by all who ask for it; None if there are too many of them already."""
        if key not in self.tables:
            if self.table_bytes + size_bytes > self.limits.folded_bytes // 4:
                return None
            self.table_bytes += size_bytes
            self.tables[key] = make()
            self.tables[key].flags.writeable = False
        return self.tables[key]

    def count_copy(self, proto: NodeProto, number: int) -> None:
        """Count the bytes of a node's attributes that are copied into the graph once more, for each call around it."""
        if id(proto) in self.copied:
            self.copied_bytes += number
        self.copied[id(proto)] = proto
        if self.copied_bytes > COPIED_BYTES:
            raise ConstantTooLarge(
                "a function with large attributes is called too often",
                expected=f"at most {COPIED_BYTES:,} bytes of repeated attributes",
                got=f"{self.copied_bytes:,} bytes or more",
                hint="turn the attributes into inputs",
            )

    def forget_nodes(self, node_count: int) -> None:
        """Go back to an earlier count, as what was imported since then is imported again."""
        self.repeated_nodes += self.node_count - node_count
        self.node_count = node_count
        if self.repeated_nodes > 1000 + REPEATS * self.file_nodes:
            raise TooManyNodes(
                "loops inside loops carry values whose types take too long to find",
                expected=f"to look at most {REPEATS} times at a node",
                got="more",
                hint="give what the loops carry fixed shapes",
            )

    def count_nodes(self, number: int) -> None:
        self.node_count += number
        if self.node_count > self.limits.nodes:
            raise TooManyNodes(
                "the model has too many nodes",
                expected=f"at most {self.limits.nodes}, expanded functions included",
                got=f"{self.node_count} or more",
                hint="raise Limits.nodes if you trust the file",
            )


class _Hole(Enum):
    """Names that stand for no value."""

    ABSENT = "an optional input of a function that the caller did not give"
    UNSUPPORTED = "the output of a node that cannot be imported"


class Scope:
    """Names of one ONNX graph or function body, and the graph being built from it.

    A subgraph has a builder of its own; a name of an outer scope becomes one of its inputs (`captures`), or is
    copied if it is constant. A function body has names of its own but adds to its caller's builder.
    """

    def __init__(
        self, model: _Model, builder: Builder, opsets: Mapping[str, int], parent: Scope | None = None, depth: int = 0
    ) -> None:
        self.model = model
        self.builder = builder
        self.opsets = opsets
        self.parent = parent
        self.depth = depth
        self.names: dict[str, Value | _Hole] = {}
        self.captures: dict[str, Value] = {}
        self.known: dict[Value, np.ndarray[Any, np.dtype[Any]]] = {}
        self.constant_values: set[Value] = set()
        self.origins: dict[Value, frozenset[str]] = {}
        """Values that small inputs of the model determine alone, and the names of these inputs."""
        self.attributes: Mapping[str, AttributeProto] | None = None
        """Those of the function around this scope, if there is one."""
        self.prefix = ""
        self.reports = True
        self.is_inline = False
        self.declared: dict[str, onnx.TypeProto] = {}
        if depth > model.limits.depth:
            raise NestingTooDeep(
                "subgraphs or functions are nested too deeply",
                expected=f"at most {model.limits.depth} levels",
                got="more",
                hint="a function that calls itself never ends; otherwise raise Limits.depth",
            )

    # --- names ---

    def define(self, name: str, value: Value | _Hole) -> None:
        """Bind an ONNX name."""
        if name in self.names:
            raise DuplicateName(
                f"the name {quoted(name)} is defined twice",
                where=self.builder.location,
                expected="every value defined once",
                got="a second definition",
                hint="the exporter that wrote this file is at fault; rename one of them",
            )
        self.names[name] = value

    def lookup(self, name: str) -> Value | _Hole:
        """The value of a name, here or outside."""
        if name in self.names:
            return self.names[name]
        if self.parent is None:
            raise InvalidModel(
                f"the name {quoted(name)} is not defined",
                where=self.builder.location,
                expected="an input, an initializer or an earlier node's output",
                got="nothing of that name",
                hint="the file is damaged or was edited by hand",
            )
        outer = self.parent.lookup(name)
        self.names[name] = self._capture(name, outer) if isinstance(outer, Value) else outer
        return self.names[name]

    def _capture(self, name: str, outer: Value) -> Value:
        assert self.parent is not None
        if self.is_inline:
            return outer
        array = self.parent.builder.constants.get(outer)
        if array is not None:
            return self.builder.constant(array, name)
        value = self.builder.input(name, outer.type)
        self.captures[name] = outer
        if outer in self.parent.known:
            self.known[value] = self.parent.known[outer]
        if outer in self.parent.origins:
            self.origins[value] = self.parent.origins[outer]
        return value

    def try_type(self, name: str) -> TensorType | None:
        """The type of a value, or the one it is declared with if it could not be imported."""
        value = self.lookup(name)
        if isinstance(value, Value):
            return value.type
        declared = self.declared[name].tensor_type if name in self.declared else onnx.TypeProto.Tensor()
        dtype = DTYPE_OF_ONNX.get(declared.elem_type)
        if dtype is None or not declared.HasField("shape"):
            return None
        return TensorType(dtype, dims_of_proto(declared.shape, lambda dim, place: named_dim(dim or f"{name}_{place}")))

    def known_dims(self, value: Value) -> np.ndarray[Any, np.dtype[Any]] | None:
        """The elements of a small integer tensor as numbers and expressions, where they are known."""
        if value in self.known:
            return self.known[value]
        array = self.builder.constants.get(value)
        if array is None or array.size > MAX_KNOWN_ELEMENTS or not (value.dtype.is_integer or value.dtype is BOOL):
            return None
        return object_array([int(item) for item in array.reshape(-1).tolist()], array.shape)

    # --- graphs ---

    def import_inputs(self, graph: GraphProto, shapes: Shapes, values: Values) -> None:
        """Inputs that are not initializers (old files list those too), with what the caller binds of them."""
        stored = {tensor.name for tensor in graph.initializer}
        inputs = [info for info in graph.input if info.name not in stored]
        known = {info.name for info in inputs}
        for option, names in (("shapes", shapes), ("values", values)):
            for name in names:
                if name not in known:
                    raise UsageError(
                        f"{option} names an input {name!r} that the model does not have",
                        expected=", ".join(sorted(known)),
                        got=name,
                        hint="`foretell check` lists the inputs",
                    )
        bound: dict[Sym, Dim] = {}
        types = [input_type(info, shapes.get(info.name), bound, self.model.limits) for info in inputs]
        for info, type in zip(inputs, types, strict=True):
            if info.name in values:
                check_value(info.name, type, values[info.name], bound)
        for info, type in zip(inputs, types, strict=True):
            if info.name in values:
                self.define(info.name, self.builder.constant(np.array(values[info.name], order="C"), info.name))
                continue
            shape = tuple(expr.substitute(dim, bound) for dim in type.shape)
            value = self.builder.input(info.name, replace(type, shape=shape))
            self.define(info.name, value)
            if _may_specialise(value.type):
                self.origins[value] = frozenset([value.name])

    def import_body(self, graph: GraphProto) -> list[Value] | None:
        """Initializers, then nodes; the outputs, or None if one of them depends on something unsupported."""
        if graph.sparse_initializer:
            raise UnsupportedType(
                "the model has sparse initializers",
                where=graph.sparse_initializer[0].values.name,
                expected="dense tensors",
                got="a sparse tensor",
                hint="convert it to a dense initializer before export",
            )
        self.declared = {info.name: info.type for info in (*graph.value_info, *graph.output)}
        for tensor in graph.initializer:
            self.define(tensor.name, self.builder.constant(self.model.stored.array(tensor), tensor.name))
        self.import_nodes(graph.node)
        return self.find_outputs([info.name for info in graph.output])

    def find_outputs(self, names: Sequence[str]) -> list[Value] | None:
        """The values of the outputs, or None if an unsupported node makes one of them."""
        if len(set(names)) != len(names):
            raise DuplicateName("two outputs have one name", expected="distinct names", got=", ".join(names)[:200])
        found = [self.lookup(name) for name in names]
        if _Hole.ABSENT in found:
            raise InvalidModel(
                f"the output {quoted(names[found.index(_Hole.ABSENT)])} stands for nothing",
                expected="a value that a node makes",
                got="an optional output that its node does not have",
                hint="the file is damaged or was edited by hand",
            )
        values = [value for value in found if isinstance(value, Value)]
        return values if len(values) == len(found) else None

    def import_nodes(self, nodes: Sequence[NodeProto]) -> None:
        self.model.count_nodes(sum(node_weight(node, self.depth > 0) for node in nodes))
        for proto in order_nodes(nodes, self.prefix):
            self.import_node(proto)

    # --- nodes ---

    def import_node(self, proto: NodeProto) -> None:
        """Import one node and bind its outputs."""
        location = location_of(proto, self.prefix)
        self._check_operands(proto, location)
        outer_location, outer_hint = self.builder.location, self.builder.hint
        self.builder.location = location
        self.builder.hint = shortened(next((name for name in proto.output if name), proto.op_type))
        found = [self.lookup(name) if name else _Hole.ABSENT for name in proto.input]
        inputs = tuple(value if isinstance(value, Value) else None for value in found)
        results: Sequence[Value | None] | None = None
        if _Hole.UNSUPPORTED in found:
            self._record_blocked(proto, location)
        else:
            try:
                results = self._import_operator(proto, inputs, location)
            except Unsupported as reason:
                if not self.reports:
                    raise
                self._record(proto, location, "unsupported", f"{shortened(proto.op_type)}: {reason}")
            except BAD_NODE as failure:
                raise InvalidNode(
                    f"{shortened(proto.op_type)} cannot be imported: {_first_line(failure)}",
                    where=location,
                    expected="operands and attributes as the ONNX operator demands",
                    got=", ".join(str(value.type) if value else "none" for value in inputs[:20])[:300] or "no inputs",
                    hint="the file may be damaged; onnx.checker.check_model may say more",
                ) from failure
            except LimitExceeded as failure:
                failure.where = failure.where or location
                raise
        for number, name in enumerate(proto.output):
            if name:
                value = _Hole.UNSUPPORTED if results is None else results[number]
                self.define(name, _Hole.ABSENT if value is None else value)
        self.builder.location, self.builder.hint = outer_location, outer_hint

    def _check_operands(self, proto: NodeProto, location: str) -> None:
        count, limit = len(proto.input) + len(proto.output) + len(proto.attribute), self.model.limits.operands
        if count > limit:
            raise TooManyOperands(
                "a node has too many inputs, outputs and attributes",
                where=location,
                expected=f"at most {limit:,}",
                got=f"{count:,}",
                hint="raise Limits.operands if you trust the file",
            )
        if not proto.op_type:
            raise InvalidNode(
                "a node names no operator", where=location, expected="an operator", got="none", hint="export it again"
            )

    def _import_operator(
        self, proto: NodeProto, inputs: tuple[Value | None, ...], location: str
    ) -> Sequence[Value | None]:
        attributes = self._bound_attributes(proto)
        function = self.model.functions.get(function_called(proto))
        start = len(self.builder.nodes)
        if function is not None:
            self._record(proto, location, "decomposed")
            return self.expand_function(function, proto, inputs, attributes, reports=self.reports)
        node = OnnxNode(proto, self._schema(proto), inputs, attributes, self, location)
        check_against_schema(proto, node.schema, attributes)
        check_input_types(node.schema, inputs)
        results, status = self._translate(node)
        if len(results) < node.output_count:
            raise Unsupported(f"its output {len(results)}, which foretell does not compute")
        self._check_new_nodes(start)
        self._record(proto, location, status)
        self._fold_small_constants(start)
        return results

    def _translate(self, node: OnnxNode) -> tuple[tuple[Value | None, ...], str]:
        """The values that stand for the node's outputs, and what became of it."""
        start = len(self.builder.nodes)
        value = try_shape_value(node)
        if value is not None:
            return (self.dims_value(value[0], value[1]),), "native"
        importer = IMPORTERS.get((node.schema.domain, node.op_type))
        result = importer(node) if importer is not None else None
        if result is not None:
            results = result if isinstance(result, tuple) else (result,)
            added = [added.op for added in self.builder.nodes[start:]]
            return results, "native" if len(added) <= 1 else "decomposed"
        assert len(self.builder.nodes) == start, f"the importer of {node.op_type} declined after adding nodes"
        body = try_function_body(node)
        if body is not None:
            try:
                results = self.expand_function(body, node.proto, node.inputs, node.attributes_with_defaults)
            except (Unsupported, InvalidNode):
                # Where the body needs to know more than the operator does, or is wrong itself (AffineGrid's is for a
                # batch of one), the reference still runs the operator.
                del self.builder.nodes[start:]
            else:
                on_reference = any(added.op == "Onnx" for added in self.builder.nodes[start:])
                return results, "reference" if on_reference else "decomposed"
        return make_reference_node(node), "reference"

    def note_unknown(self, node: OnnxNode) -> None:
        """Remember the small inputs of the model that tell what the importer of a node did not know."""
        values = [value for number in node.unknown if (value := node.optional(number)) not in self.builder.constants]
        if all(value in self.origins for value in values):
            self.model.specialising.update(*(self.origins[value] for value in values if value is not None))

    def dims_value(self, elements: np.ndarray[Any, np.dtype[Any]], type: TensorType) -> Value:
        """A value whose elements are numbers and expressions: a constant if all are numbers."""
        flat: list[Dim] = elements.reshape(-1).tolist()
        if all(isinstance(item, int) for item in flat):
            return self.builder.constant(np.array(flat, type.dtype.numpy).reshape(elements.shape), self.builder.hint)
        value = self.builder.op("Dims", values=tuple(flat), shape=tuple(elements.shape), dtype=type.dtype)
        self.known[value] = elements
        return value

    def expand_function(
        self,
        function: FunctionProto,
        call: NodeProto,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, AttributeProto],
        reports: bool = False,
    ) -> tuple[Value | None, ...]:
        """Import a function's body in place of a call; `reports` says whether its nodes are the model's own."""
        scope = Scope(self.model, self.builder, opsets_of(function.opset_import), depth=self.depth + 1)
        scope.known, scope.constant_values, scope.origins = self.known, self.constant_values, self.origins
        scope.prefix, scope.reports = f"{self.builder.location}/", reports
        scope.attributes = {default.name: default for default in function.attribute_proto} | dict(attributes)
        for number, name in enumerate(function.input):
            value = inputs[number] if number < len(inputs) else None
            scope.define(name, _Hole.ABSENT if value is None else value)
        scope.import_nodes(function.node)
        if len(call.output) > len(function.output):
            raise ValueError(f"{len(call.output)} outputs, where the function has {len(function.output)}")
        results = [
            scope.lookup(name) if used else None for name, used in zip(function.output, call.output, strict=False)
        ]
        if _Hole.UNSUPPORTED in results:
            raise Unsupported("its body uses an unsupported operator")
        return tuple(value if isinstance(value, Value) else None for value in results)

    def import_inline(self, graph: GraphProto) -> tuple[Value, ...]:
        """A subgraph without inputs whose nodes are added right here."""
        scope = Scope(self.model, self.builder, self.opsets, parent=self, depth=self.depth + 1)
        scope.is_inline, scope.reports = True, self.reports
        scope.known, scope.constant_values, scope.origins = self.known, self.constant_values, self.origins
        scope.prefix, scope.attributes = f"{self.builder.location}/", self.attributes
        outputs = scope.import_body(graph)
        if outputs is None:
            raise Unsupported("its subgraph uses an unsupported operator")
        return tuple(outputs)

    def import_subgraph(self, graph: GraphProto, types: Sequence[TensorType], name: str) -> tuple[Graph, list[Value]]:
        """A subgraph as a closed graph, and the outer values that it takes after its own inputs."""
        scope = Scope(self.model, Builder(name), self.opsets, parent=self, depth=self.depth + 1)
        scope.reports = self.reports
        scope.prefix, scope.attributes = f"{self.builder.location}/", self.attributes
        if len(graph.input) != len(types):
            raise ValueError(f"the subgraph takes {len(graph.input)} inputs, where {len(types)} are given")
        for info, type in zip(graph.input, types, strict=True):
            scope.define(info.name, scope.builder.input(info.name, type))
        outputs = scope.import_body(graph)
        if outputs is None:
            raise Unsupported("its subgraph uses an unsupported operator")
        built = scope.builder.finish(outputs, [info.name for info in graph.output])
        return built, list(scope.captures.values())

    # --- checks, records and small constants ---

    def _schema(self, proto: NodeProto) -> OpSchema:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        version = self.opsets.get(domain)
        if version is None:
            raise Unsupported(f"the model imports no operator set for domain {domain or 'ai.onnx'!r}")
        if not 0 < version < 1 << 31:
            raise Unsupported(f"domain {domain or 'ai.onnx'!r} has no version {version}")
        try:
            schema = defs.get_schema(proto.op_type, version, domain)
        except defs.SchemaError:
            raise Unsupported(f"unknown operator of domain {domain or 'ai.onnx'!r}, opset {version}") from None
        # Exporters have written deprecated operators (GroupNormalization of opset 18); their meaning is still known.
        if schema.deprecated and (domain, proto.op_type) not in IMPORTERS:
            raise Unsupported(f"deprecated in opset {version}")
        if not domain and version < OLDEST_OPSET and not is_unchanged(schema):
            raise Unsupported(f"its meaning in opset {version} differs from that in opset {OLDEST_OPSET}")
        return schema

    def _bound_attributes(self, proto: NodeProto) -> dict[str, AttributeProto]:
        """The node's attributes, where a reference to a function's attribute is replaced by what the caller gave."""
        bound: dict[str, AttributeProto] = {}
        for attribute in proto.attribute:
            if attribute.name in bound:
                raise ValueError(f"attribute {attribute.name!r} stands twice")
            if not attribute.ref_attr_name:
                bound[attribute.name] = attribute
            elif self.attributes is None:
                raise ValueError(f"attribute {attribute.name!r} refers to a function's, and there is no function")
            elif attribute.ref_attr_name in self.attributes:
                given = self.attributes[attribute.ref_attr_name]
                if given.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
                    raise Unsupported("a subgraph that is an attribute of a function")
                bound[attribute.name] = given  # under the name it has there; a copy could be of any size
        return bound

    def _record(self, proto: NodeProto, location: str, status: str, reason: str = "") -> None:
        if self.reports:
            op_type, domain = shortened(proto.op_type), shortened(proto.domain)
            self.model.operators.append(OperatorUse(op_type, domain, location, status, reason))

    def _record_blocked(self, proto: NodeProto, location: str) -> None:
        """Say of a node whose inputs cannot be had what its operator alone tells."""
        try:
            if function_called(proto) not in self.model.functions and not self._is_known(proto):
                raise Unsupported(NO_DEFINITION)
        except Unsupported as reason:
            self._record(proto, location, "unsupported", f"{shortened(proto.op_type)}: {reason}")
        else:
            self._record(proto, location, "blocked")

    def _is_known(self, proto: NodeProto) -> bool:
        schema: Any = self._schema(proto)  # onnx's stubs leave out what schemas say about functions
        has_body = schema.has_function or schema.has_context_dependent_function
        has_importer = (schema.domain, proto.op_type) in IMPORTERS
        return has_importer or has_body or has_reference(schema.domain, proto.op_type, schema.since_version)

    def _check_new_nodes(self, start: int) -> None:
        for node in self.builder.nodes[start:]:
            inputs = node.present_inputs
            constant = all(value in self.builder.constants or value in self.constant_values for value in inputs)
            for value in node.outputs:
                self.check_type(value.type, node.location, constant)
            if constant:
                self.constant_values.update(node.outputs)
            if all(value in self.builder.constants or value in self.origins for value in inputs):
                origins = frozenset[str]().union(*(self.origins.get(value, ()) for value in inputs))
                if len(origins) <= MAX_ORIGINS:
                    self.origins.update(dict.fromkeys(node.outputs, origins))

    def check_type(self, type: TensorType, where: str, constant: bool = False) -> None:
        """Refuse a type that breaks a limit or makes no sense; nothing of it exists yet."""
        check_type(type, where, self.model.limits, constant)

    def _fold_small_constants(self, start: int) -> None:
        """Compute small nodes whose inputs are all constant, so that later shapes can depend on them."""
        kept: list[Node] = []
        for node in self.builder.nodes[start:]:
            arrays = self._try_small_constant(node)
            if arrays is None:
                kept.append(node)
                continue
            for value, array in zip(node.outputs, arrays, strict=True):
                array.flags.writeable = False
                self.builder.constants[value] = array
                del self.builder.producers[value]
        self.builder.nodes[start:] = kept

    def _try_small_constant(self, node: Node) -> list[Array] | None:
        inputs = [None if value is None else self.builder.constants.get(value) for value in node.inputs]
        if any(array is None and value is not None for array, value in zip(inputs, node.inputs, strict=True)):
            return None
        if node.symbols or any(array is not None and array.size > SMALL_ELEMENTS for array in inputs):
            return None
        for value in node.outputs:
            elements = value.type.elements
            if not isinstance(elements, int) or elements > SMALL_ELEMENTS:
                return None
        if not self._spend_points(node):
            return None
        try:
            arrays = evaluate_node(node, inputs, {})
        except EvaluationError:
            return None
        return [array if array.flags.owndata else array.copy() for array in arrays]

    def _spend_points(self, node: Node) -> bool:
        """Whether there is time to compute the node: a small result may take any number of steps.

        Control flow and what the reference runs are left alone, as nothing tells how long they take.
        """
        define = OPS[node.op].define
        if define is None:
            return False
        operands = tuple(None if value is None else value.type for value in node.inputs)
        points = definition_points(define(operands, node.attrs))
        if not isinstance(points, int) or points > min(SMALL_POINTS, self.model.points_left):
            return False
        self.model.points_left -= points
        return True


def _may_specialise(type: TensorType) -> bool:
    return type.rank <= 1 and type.is_static and prod(type.static_shape) <= SPECIALISING_ELEMENTS


def _first_line(failure: BaseException) -> str:
    return (str(failure).splitlines() or [type(failure).__name__])[0][:300]
