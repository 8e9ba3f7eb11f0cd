"""Valid models, and what an adversary might make of them: byte by byte, and field by field."""

from __future__ import annotations

import importlib
import math
import pkgutil
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper
from onnx.backend.test.case import node as node_cases
from onnx.backend.test.case.test_case import TestCase

HOSTILE_INTS = (
    *(-(1 << 63), -(1 << 31), -1000, -2, -1, 0, 1, 2, 3, 7, 33, 1000),
    *(1 << 31, 1 << 32, 1 << 62, (1 << 63) - 1),
)
HOSTILE_FLOATS = (0.0, -0.0, -1.0, 1e-30, 0.5, 3.0, 1e30, float("inf"), float("-inf"), float("nan"))
HOSTILE_TEXTS = (
    *("", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "none", "linear"),
    *("...->", "ij->ii", "i,j,k->ijk", "\0", "é" * 50),
)
MODULES = tuple(
    """
    add affinegrid argmax attention batch_normalization cast center_crop_pad clip col2im compress concat constantofshape
    conv convinteger convtranspose cumsum dequantizelinear dft dropout einsum expand eyelike flatten gather gathernd
    gemm gridsample groupnormalization gru hammingwindow if_ layernormalization loop lstm matmul maxunpool mean
    melweightmatrix negativeloglikelihoodloss nonmaxsuppression nonzero onehot pad qlinearconv qlinearmatmul
    quantizelinear rangeop reduce_log_sum_exp reduceprod reshape resize reversesequence rnn roialign rotaryembedding
    scan scatternd sequence_map shape shrink slice softmax_cross_entropy_loss spacetodepth split stft tfidfvectorizer
    tile topk transpose trilu unique unsqueeze upsample where ai_onnx_ml.tree_ensemble ai_onnx_ml.label_encoder
    """.split()
)
"""Modules of the ONNX backend suite that make the seeds of a short run."""


@dataclass(frozen=True, slots=True)
class Seed:
    """A valid model, and the same with its inputs turned into constants, which exercises folding."""

    name: str
    model: bytes
    frozen: bytes


def load_seeds(all_modules: bool = False) -> list[Seed]:
    """Models of the backend suite, light models of the onnx package, and a few of our own; in a fixed order.

    All of them, or a selection that is quick to load and to read.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(node_cases.__path__)) if all_modules else MODULES
    seeds = [_seed(case) for name in names for case in _cases_of(name)[: None if all_modules else 2]]
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for path in sorted(folder.glob("*.onnx" if all_modules else "*squeezenet.onnx")):
        seeds.append(Seed(path.stem, path.read_bytes(), path.read_bytes()))
    own = (nested_model(), function_model(), shape_model(), pool_model(), quantised_model())
    return seeds + [Seed(model.graph.name, model.SerializeToString(), model.SerializeToString()) for model in own]


def _cases_of(module: str) -> list[TestCase]:
    """The cases that importing a module of the suite adds to its list."""
    cases: list[TestCase] = getattr(node_cases, "_NodeTestCases")  # noqa: B009 (it is private)
    before = len(cases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(f"{node_cases.__name__}.{module}")
    return cases[before:]


def _seed(case: TestCase) -> Seed:
    model = case.model
    assert model is not None and case.data_sets is not None
    frozen = ModelProto()
    frozen.CopyFrom(model)
    kept = list(frozen.graph.input)
    del frozen.graph.input[:]
    for info, value in zip(kept, case.data_sets[0][0], strict=False):
        if isinstance(value, np.ndarray) and value.dtype != object:
            frozen.graph.initializer.append(numpy_helper.from_array(value, info.name))
        else:
            frozen.graph.input.append(info)
    return Seed(case.name, model.SerializeToString(), frozen.SerializeToString())


def nested_model() -> ModelProto:
    """If inside Loop, both with captures."""
    return onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["": 21]>
        nested (float[2,n] x, bool c) => (float[2,n] y, float[t,2,n] z) {
            trips = Constant <value_int = 3> ()
            y, z = Loop <body = body (int64 i, bool go, float[2,n] state)
                => (bool again, float[2,n] out, float[2,n] row) {
                again = Identity (go)
                out = If (c) <
                    then_branch = then () => (float[2,n] r) { r = Add (state, x) },
                    else_branch = else () => (float[2,n] s) { s = Mul (state, x) }
                >
                row = Neg (out)
            }> (trips, , x)
        }
        """
    )


def function_model() -> ModelProto:
    """Functions that call one another, with attributes that are passed on."""
    return onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["": 21, "own": 1]>
        functions (float[2,n] x) => (float[2,n] y) { h = own.outer <slope = 0.5> (x) y = own.inner <alpha = 2.0> (h) }
        <domain: "own", opset_import: ["": 21, "own": 1]>
        outer <slope> (a) => (b) { c = own.inner <alpha: float = @slope> (a) b = own.inner <alpha: float = @slope> (c) }
        <domain: "own", opset_import: ["": 21]>
        inner <alpha> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }
        """
    )


def shape_model() -> ModelProto:
    """Arithmetic on symbolic dimensions."""
    return onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["": 21]>
        shapes (float[n,m,12] x) => (float[a,b] y, int64[c] z) {
            s = Shape (x)
            zero = Constant <value_ints = [0]> ()
            two = Constant <value_ints = [2]> ()
            n = Gather (s, zero)
            d = Gather (s, two)
            p = Mul (n, d)
            q = Div (d, two)
            h = Add (n, q)
            rest = Constant <value_ints = [-1]> ()
            t = Concat <axis = 0> (n, rest)
            y = Reshape (x, t)
            e = Max (p, h)
            low = Constant <value_int = 0> ()
            one = Constant <value_int = 1> ()
            top = Squeeze (e, zero)
            z = Range (low, top, one)
        }
        """
    )


def pool_model() -> ModelProto:
    """Windows of all kinds."""
    return onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["": 21]>
        pools (float[1,2,8,n] x) => (float[a,b,c,d] y, int64[e,f,g,h] z, float[i,j,k,l] w) {
            m, z = MaxPool <kernel_shape = [3, 3], strides = [2, 1], pads = [1, 1, 1, 1], ceil_mode = 1> (x)
            w = AveragePool <kernel_shape = [2, 2], auto_pad = "SAME_UPPER", count_include_pad = 1> (m)
            p = LpPool <kernel_shape = [2, 2], dilations = [2, 2], p = 3> (x)
            y = GlobalAveragePool (p)
        }
        """
    )


def quantised_model() -> ModelProto:
    """Weights and activations that are stored as bytes."""
    return onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["": 21]>
        quantised (float[n,4] x) => (float[n,2] y)
        <float scale = {0.1}, uint8 zero = {128}, int8[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8},
         float[2] scales = {0.1, 0.2}, int8[2] zeros = {0, 1}>
        {
            q = QuantizeLinear (x, scale, zero)
            d = DequantizeLinear (q, scale, zero)
            v = DequantizeLinear <axis = 1> (w, scales, zeros)
            h = MatMul (d, v)
            r = DynamicQuantizeLinear (h)
            y = Relu (h)
        }
        """
    )


def make_case(number: int, seeds: Sequence[Seed]) -> tuple[str, bytes]:
    """Case `number` of the endless fuzz run: what was done to which seed, and the file."""
    rng = random.Random(number)
    if rng.random() < 0.25:
        model = random_node_model(rng)
        return f"{number}: a random {model.graph.node[0].op_type}", model.SerializeToString()
    seed = rng.choice(seeds)
    data = seed.frozen if rng.random() < 0.5 else seed.model
    if rng.random() < 0.15:
        return f"{number}: bytes of {seed.name}", mutate_bytes(rng, data)
    model = ModelProto.FromString(data)
    done: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        mutation = rng.choice(MUTATIONS)
        mutation(rng, model, seeds)
        done.append(mutation.__name__)
    return f"{number}: {', '.join(done)} of {seed.name}", model.SerializeToString()


# --- one node, made up ---------------------------------------------------------------------------------------

_ELEMENT_TYPES = {
    f"tensor({name.lower()})": number for name, number in TensorProto.DataType.items() if name != "UNDEFINED"
}
_SMALL_INTS = (-3, -2, -1, 0, 0, 1, 1, 1, 2, 2, 3, 4)


def random_node_model(rng: random.Random) -> ModelProto:
    """One operator of any version, its inputs of types that it allows, everything else as it comes."""
    version = rng.randrange(7, 29)
    schema = rng.choice(_SCHEMAS)
    if defs.has(schema.name, version, schema.domain):
        schema = defs.get_schema(schema.name, version, schema.domain)
    graph = GraphProto(name="made_up")
    node = graph.node.add()
    node.op_type, node.domain = schema.name, schema.domain
    chosen: dict[str, str] = {}
    for number in range(rng.randint(schema.min_input, min(schema.max_input, schema.min_input + 4))):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        if rng.random() < 0.1:
            node.input.append("")
            continue
        node.input.append(f"x{number}")
        _add_input(rng, graph, f"x{number}", _element_type(rng, schema, formal.type_str, chosen))
    for number in range(rng.randint(max(1, schema.min_output), min(schema.max_output, schema.min_output + 3))):
        node.output.append(f"y{number}")
        graph.output.append(helper.make_empty_tensor_value_info(f"y{number}"))
    for name, attribute in schema.attributes.items():
        if attribute.required or rng.random() < 0.5:
            value = _attribute_value(rng, int(getattr(attribute.type, "value")))  # noqa: B009 (onnx's stubs lack it)
            node.attribute.append(helper.make_attribute(name, value))
    opsets = [helper.make_opsetid("", version)]
    if schema.domain:
        opsets.append(helper.make_opsetid(schema.domain, schema.since_version))
    return ModelProto(ir_version=10, graph=graph, opset_import=opsets)


def _element_type(rng: random.Random, schema: defs.OpSchema, parameter: str, chosen: dict[str, str]) -> int:
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    if parameter not in chosen:
        choices = [name for name in allowed.get(parameter, [parameter]) if name in _ELEMENT_TYPES]
        common = [name for name in choices if name in ("tensor(float)", "tensor(int64)")]
        chosen[parameter] = rng.choice(common if common and rng.random() < 0.7 else choices or ["tensor(float)"])
    return _ELEMENT_TYPES[chosen[parameter]]


def _add_input(rng: random.Random, graph: GraphProto, name: str, element_type: int) -> None:
    """A constant or an input, of few elements: one that is small is likelier to mean something."""
    dims = [rng.choice((0, 1, 1, 2, 2, 3, 4)) for _ in range(rng.choice((0, 1, 1, 2, 3, 4, 4, 5)))]
    choices: dict[int, Sequence[float]] = {
        TensorProto.INT64: rng.choice((HOSTILE_INTS, _SMALL_INTS, _SMALL_INTS)),
        TensorProto.INT32: _SMALL_INTS,
        TensorProto.FLOAT: rng.choice((HOSTILE_FLOATS, (0.5, 1.0, 2.0))),
        TensorProto.BOOL: (False, True),
    }
    numbers = choices.get(element_type)
    if numbers is not None and rng.random() < 0.5:
        values = [rng.choice(numbers) for _ in range(math.prod(dims))]
        graph.initializer.append(helper.make_tensor(name, element_type, dims, values))
        return
    symbolic: list[int | str | None] = [rng.choice(("n", "m", None)) if rng.random() < 0.2 else dim for dim in dims]
    graph.input.append(helper.make_tensor_value_info(name, element_type, symbolic))


def _attribute_value(rng: random.Random, kind: int) -> object:
    ints = rng.choice((HOSTILE_INTS, _SMALL_INTS, _SMALL_INTS))
    count = rng.randrange(6)
    values: dict[int, Callable[[], object]] = {
        AttributeProto.INT: lambda: rng.choice(ints),
        AttributeProto.FLOAT: lambda: rng.choice(HOSTILE_FLOATS),
        AttributeProto.STRING: lambda: rng.choice(HOSTILE_TEXTS),
        AttributeProto.INTS: lambda: [rng.choice(ints) for _ in range(count)] or [1],
        AttributeProto.FLOATS: lambda: [rng.choice(HOSTILE_FLOATS) for _ in range(count)] or [1.0],
        AttributeProto.STRINGS: lambda: [rng.choice(HOSTILE_TEXTS) for _ in range(count)] or ["Tanh"],
        AttributeProto.TENSOR: lambda: _hostile_tensor(rng, "t"),
        AttributeProto.GRAPH: lambda: helper.make_graph([], "empty", [], []),
    }
    return values.get(kind, lambda: 1)()


# --- bytes ---------------------------------------------------------------------------------------------------


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """A few bytes changed, put in, taken out, repeated, or the end cut off."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(5):
            case 0:
                changed[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                changed[place:place] = rng.randbytes(rng.randrange(1, 5))
            case 2:
                del changed[place : place + rng.randrange(1, 9)]
            case 3:
                changed[place:place] = changed[place : place + rng.randrange(1, 40)]
            case _:
                changed[place : place + 1] = b"\xff" * 9 + b"\x01"
    if rng.random() < 0.1:
        del changed[rng.randrange(len(changed) + 1) :]
    return bytes(changed)


# --- fields --------------------------------------------------------------------------------------------------

Mutation = Callable[[random.Random, ModelProto, Sequence[Seed]], None]


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all graphs in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_of(attribute.g)


def _any_graph(rng: random.Random, model: ModelProto) -> GraphProto:
    return rng.choice(list(graphs_of(model.graph)))


def _any_node(rng: random.Random, model: ModelProto) -> NodeProto | None:
    nodes = [node for graph in graphs_of(model.graph) for node in graph.node]
    nodes += [node for function in model.functions for node in function.node]
    return rng.choice(nodes) if nodes else None


def _names(model: ModelProto) -> list[str]:
    names = [info.name for info in model.graph.input] + [tensor.name for tensor in model.graph.initializer]
    return names + [name for graph in graphs_of(model.graph) for node in graph.node for name in node.output]


def change_attribute(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    """One number or text of an attribute becomes a hostile one; or there are more or fewer of them."""
    node = _any_node(rng, model)
    if node is None or not node.attribute:
        return
    attribute = rng.choice(node.attribute)
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = rng.choice(HOSTILE_INTS)
        case AttributeProto.FLOAT:
            attribute.f = rng.choice(HOSTILE_FLOATS)
        case AttributeProto.STRING:
            attribute.s = rng.choice(HOSTILE_TEXTS).encode()
        case AttributeProto.INTS:
            _change_list(rng, attribute.ints, HOSTILE_INTS)
        case AttributeProto.FLOATS:
            _change_list(rng, attribute.floats, HOSTILE_FLOATS)
        case AttributeProto.TENSOR:
            _change_tensor(rng, attribute.t)
        case _:
            attribute.type = rng.choice(AttributeProto.AttributeType.values())  # pyright: ignore


def _change_list(rng: random.Random, numbers: Any, hostile: Sequence[float]) -> None:
    """One number in a list of a message more, less or other; or all of them hostile."""
    choice = rng.randrange(4)
    if choice == 0 or not len(numbers):
        numbers.append(rng.choice(hostile))
    elif choice == 1:
        del numbers[rng.randrange(len(numbers))]
    elif choice == 2:
        numbers[rng.randrange(len(numbers))] = rng.choice(hostile)
    else:
        numbers[:] = [rng.choice(hostile)] * len(numbers)


def add_attribute(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    """An attribute that the operator knows, with a hostile value; or one that it does not know."""
    node = _any_node(rng, model)
    if node is None:
        return
    name, kind = "surprise", AttributeProto.INT
    if defs.has(node.op_type, node.domain) and defs.get_schema(node.op_type, domain=node.domain).attributes:
        known = defs.get_schema(node.op_type, domain=node.domain).attributes
        name = rng.choice(sorted(known))
        kind = int(getattr(known[name].type, "value"))  # noqa: B009 (onnx's stubs lack it)
    if rng.random() < 0.8:
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)
    node.attribute.append(helper.make_attribute(name, _attribute_value(rng, kind)))


def remove_attribute(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    node = _any_node(rng, model)
    if node is not None and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def refer_to_attribute(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    """An attribute that stands for one of the function around it, be there one or not."""
    node = _any_node(rng, model)
    if node is not None and node.attribute:
        rng.choice(node.attribute).ref_attr_name = rng.choice(("alpha", "axis", "slope"))


def _hostile_tensor(rng: random.Random, name: str) -> TensorProto:
    kinds = (TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT, TensorProto.BOOL, TensorProto.FLOAT16)
    kind = rng.choice((*kinds, TensorProto.INT4, TensorProto.STRING))
    dims = [rng.choice((0, 1, 1, 2, 3)) for _ in range(rng.randrange(4))]
    count = math.prod(dims)
    if kind == TensorProto.INT64:
        return helper.make_tensor(name, kind, dims, [rng.choice(HOSTILE_INTS) for _ in range(count)])
    if kind == TensorProto.FLOAT:
        return helper.make_tensor(name, kind, dims, [rng.choice(HOSTILE_FLOATS) for _ in range(count)])
    if kind == TensorProto.STRING:
        return TensorProto(name=name, data_type=kind, dims=dims, string_data=[b"x"] * count)
    return helper.make_tensor(name, kind, dims, [1] * count)


def _change_tensor(rng: random.Random, tensor: TensorProto) -> None:
    match rng.randrange(4):
        case 0:
            _change_list(rng, tensor.dims, HOSTILE_INTS)
        case 1:
            tensor.data_type = rng.choice((*range(27), 99))
        case 2:
            tensor.CopyFrom(_hostile_tensor(rng, tensor.name))
        case _:
            _change_values(rng, tensor)


def _change_values(rng: random.Random, tensor: TensorProto) -> None:
    """Keep the type and shape; put hostile numbers in."""
    hostile: dict[int, Sequence[float]] = {TensorProto.INT64: HOSTILE_INTS, TensorProto.FLOAT: HOSTILE_FLOATS}
    numbers = hostile.get(tensor.data_type)
    count = math.prod(tensor.dims)
    if numbers is None or not 0 <= count <= 1000:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
        return
    values = [rng.choice(numbers) for _ in range(count)]
    tensor.CopyFrom(helper.make_tensor(tensor.name, tensor.data_type, tensor.dims, values))


def change_initializer(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    graph = _any_graph(rng, model)
    if graph.initializer:
        _change_tensor(rng, rng.choice(graph.initializer))


def freeze_input(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    """A graph input becomes a constant with hostile contents."""
    if model.graph.input:
        place = rng.randrange(len(model.graph.input))
        model.graph.initializer.append(_hostile_tensor(rng, model.graph.input[place].name))
        del model.graph.input[place]


def free_initializer(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    """A constant becomes an input that the user would give."""
    graph = model.graph
    if graph.initializer:
        place = rng.randrange(len(graph.initializer))
        tensor = graph.initializer[place]
        graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        del graph.initializer[place]


def change_type(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    """The declared type of an input, an output or a value in between."""
    graph = _any_graph(rng, model)
    infos = [*graph.input, *graph.output, *graph.value_info]
    if not infos:
        return
    info = rng.choice(infos)
    tensor = info.type.tensor_type
    match rng.randrange(6):
        case 0:
            tensor.elem_type = rng.choice((*range(27), 99))
        case 1:
            tensor.ClearField("shape")
        case 2:
            info.ClearField("type")
        case 3:
            tensor.shape.dim.add().dim_value = rng.choice(HOSTILE_INTS)
        case 4 if tensor.shape.dim:
            rng.choice(tensor.shape.dim).dim_param = rng.choice(("n", "m", "u1", "n + 1", "", "n" * 300))
        case _ if tensor.shape.dim:
            rng.choice(tensor.shape.dim).dim_value = rng.choice(HOSTILE_INTS)


def rewire(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    """Inputs or outputs of a node dropped, repeated, put in another order, renamed, or left empty."""
    node = _any_node(rng, model)
    if node is None:
        return
    names = node.input if rng.random() < 0.7 else node.output
    place = rng.randrange(len(names)) if len(names) else 0
    others = _names(model)
    match rng.randrange(6):
        case 0 if len(names):
            del names[place]
        case 1 if len(names):
            names.append(names[place])
        case 2:
            names[:] = rng.sample(list(names), len(names))
        case 3 if len(names):
            names[place] = rng.choice(("", "nowhere", *others))
        case 4:
            names.append(rng.choice(("", "nowhere", *others)))
        case _:
            names.insert(place, rng.choice(("", *others)))


def change_operator(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    node = _any_node(rng, model)
    if node is not None:
        schema = rng.choice(_SCHEMAS)
        node.op_type, node.domain = schema.name, schema.domain


def change_opset(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    if model.opset_import:
        entry = rng.choice(model.opset_import)
        entry.version = rng.choice((*HOSTILE_INTS, *range(6, 29), *range(6, 29)))


def splice_node(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    """A node of another model, fed with what is at hand."""
    other = _any_node(rng, ModelProto.FromString(rng.choice(seeds).model))
    names = _names(model)
    if other is None or not names:
        return
    graph = _any_graph(rng, model)
    node = graph.node.add()
    node.CopyFrom(other)
    node.input[:] = [name and rng.choice(names) for name in node.input]
    node.output[:] = [name and f"spliced_{number}_{len(graph.node)}" for number, name in enumerate(node.output)]
    if rng.random() < 0.5 and graph.output and node.output:
        rng.choice(graph.output).name = node.output[0]


def duplicate_node(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    """The same operator once more, on its own results."""
    graph = _any_graph(rng, model)
    if not graph.node:
        return
    old = rng.choice(graph.node)
    node = graph.node.add()
    node.CopyFrom(old)
    node.output[:] = [name and f"{name}_again{len(graph.node)}" for name in node.output]
    if node.input and old.output and old.output[0]:
        node.input[0] = old.output[0]


def drop_or_move_node(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    graph = _any_graph(rng, model)
    if graph.node:
        nodes = list(graph.node)
        taken = nodes.pop(rng.randrange(len(nodes)))
        if rng.random() < 0.5:
            nodes.insert(rng.randrange(len(nodes) + 1), taken)
        copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def wrap_in_if(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    """The whole graph becomes a branch."""
    graph = model.graph
    if not graph.output:
        return
    branch = helper.make_graph(list(graph.node), "branch", [], list(graph.output))
    outputs = [info.name for info in graph.output]
    node = helper.make_node("If", ["if_condition"], outputs, then_branch=branch, else_branch=branch)
    del graph.node[:]
    graph.node.append(node)
    graph.input.append(helper.make_tensor_value_info("if_condition", TensorProto.BOOL, []))


def wrap_in_loop(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    """The whole graph becomes the body of a loop that carries one of the inputs."""
    graph = model.graph
    if not graph.output or not graph.input or not graph.node:
        return
    carried = rng.choice(graph.input)
    nodes = [*graph.node, helper.make_node("Identity", ["loop_go"], ["loop_again"])]
    head = [
        helper.make_tensor_value_info("loop_number", TensorProto.INT64, []),
        helper.make_tensor_value_info("loop_go", TensorProto.BOOL, []),
        helper.make_tensor_value_info("loop_state", TensorProto.FLOAT, None),
    ]
    again = helper.make_tensor_value_info("loop_again", TensorProto.BOOL, [])
    body = helper.make_graph(nodes, "body", head, [again, *graph.output])
    for node in body.node:
        node.input[:] = ["loop_state" if name == carried.name else name for name in node.input]
    outputs = [info.name for info in graph.output]
    trips = helper.make_tensor("loop_trips", TensorProto.INT64, [], [rng.choice(HOSTILE_INTS)])
    graph.initializer.append(trips)
    loop = helper.make_node("Loop", ["loop_trips", "", carried.name], outputs, body=body)
    del graph.node[:]
    graph.node.append(loop)


def wrap_in_function(rng: random.Random, model: ModelProto, seeds: Sequence[Seed]) -> None:
    """The whole graph becomes a function, called twice."""
    graph = model.graph
    inputs = [info.name for info in graph.input] + [tensor.name for tensor in graph.initializer]
    outputs = [info.name for info in graph.output]
    if not outputs or len(set(inputs)) != len(inputs) or len(set(outputs)) != len(outputs):
        return
    body = [NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    model.functions.append(helper.make_function("wrapped", "f", inputs, outputs, body, list(model.opset_import)))
    del graph.node[:]
    graph.node.append(helper.make_node("f", inputs, outputs, domain="wrapped"))
    graph.node.append(helper.make_node("f", inputs, [f"{name}_twice" for name in outputs], domain="wrapped"))
    model.opset_import.append(helper.make_opsetid("wrapped", 1))


_SCHEMAS = sorted(defs.get_all_schemas(), key=lambda schema: (schema.domain, schema.name))
MUTATIONS: tuple[Mutation, ...] = (
    *(change_attribute, change_attribute, change_attribute, add_attribute, add_attribute, remove_attribute),
    *(refer_to_attribute, change_initializer, change_initializer, freeze_input, free_initializer, change_type),
    *(rewire, rewire, change_operator, change_opset, splice_node, duplicate_node, drop_or_move_node),
    *(wrap_in_if, wrap_in_loop, wrap_in_function),
)
