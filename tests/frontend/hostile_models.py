"""Models made to do harm: each with the error that refuses it, or "ok" where it is valid and must stay harmless."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence

import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper

from foretell.frontend.wire import encode_varint

Build = Callable[[], "bytes | str"]
HUGE = 1 << 62
CASES: dict[str, tuple[Build, str]] = {}
"""By name: what makes the model (its bytes, or the path of a file), and the error."""


def case(name: str, error: str) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        assert name not in CASES, name
        CASES[name] = (build, error)
        return build

    return register


def text_case(name: str, error: str, text: str, opset: int = 21) -> None:
    """A case in ONNX's textual syntax; `text` is the graph, and functions after it."""
    header = f'<ir_version: 10, opset_import: ["": {opset}, "own": 1]>'
    case(name, error)(lambda: onnx.parser.parse_model(header + text).SerializeToString())


def node_case(name: str, error: str, inputs: str, call: str, opset: int = 21) -> None:
    """One node that makes y; the inputs in textual syntax, constants after a |."""
    given, _, constants = inputs.partition("|")
    text_case(name, error, f"g ({given}) => (float[] y) <{constants}> {{ y = {call} }}", opset)


def model_of(nodes: Sequence[NodeProto], **parts: list) -> ModelProto:
    """A model of nodes, from x to y unless told otherwise."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes),
        "g",
        parts.get("inputs", [value("x", TensorProto.FLOAT, [2, "n"])]),
        parts.get("outputs", [value("y", TensorProto.FLOAT, None)]),
        parts.get("initializers", []),
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=parts.get("functions", []), ir_version=10)


def node_list(*calls: str) -> list[NodeProto]:
    return [onnx.parser.parse_node(call) for call in calls]


def function_of(name: str, *calls: str) -> onnx.FunctionProto:
    """A function of x that makes y."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["x"], ["y"], node_list(*calls), opsets)


# --- size of the file, nodes, operands -----------------------------------------------------------------------


@case("a file beyond the limit", "FileTooLarge")
def _large_file() -> str:
    path = os.path.join(tempfile.mkdtemp(), "large.onnx")
    with open(path, "wb") as file:
        file.write(b"\x08\x0a")
        file.truncate(65 << 30)
    return path


@case("too many nodes", "TooManyNodes")
def _many_nodes() -> bytes:
    return model_of([helper.make_node("Relu", ["x"], [f"r{n}"]) for n in range(200_001)]).SerializeToString()


@case("too many nodes in subgraphs", "TooManyNodes")
def _many_inner_nodes() -> bytes:
    inner = [helper.make_node("Relu", ["x"], [f"r{n}"]) for n in range(1000)]
    branch = helper.make_graph(inner, "b", [], [helper.make_empty_tensor_value_info("r0")])
    nodes = [helper.make_node("If", ["c"], [f"y{n}"], then_branch=branch, else_branch=branch) for n in range(101)]
    return model_of(nodes).SerializeToString()


@case("too many nodes in functions that multiply", "TooManyNodes")
def _multiplying_functions() -> bytes:
    functions = [
        function_of(f"f{level}", *(f"r{n} = own.f{level + 1} (x)" for n in range(20)), "y = Identity (r0)")
        for level in range(5)
    ]
    functions.append(function_of("f5", "y = Relu (x)"))
    return model_of(node_list("y = own.f0 (x)"), functions=functions).SerializeToString()


@case("functions that double, too deep", "NestingTooDeep")
def _doubling_functions() -> bytes:
    functions = [function_of(f"f{n}", f"h = own.f{n + 1} (x)", f"y = own.f{n + 1} (h)") for n in range(40)]
    functions.append(function_of("f40", "y = Relu (x)"))
    return model_of(node_list("y = own.f0 (x)"), functions=functions).SerializeToString()


@case("a long chain of functions", "NestingTooDeep")
def _chain_of_functions() -> bytes:
    functions = [function_of(f"f{n}", f"y = own.f{n + 1} (x)") for n in range(3000)]
    return model_of(node_list("y = own.f0 (x)"), functions=functions).SerializeToString()


@case("loops whose bodies are imported again and again", "TooManyNodes")
def _loops_in_loops() -> bytes:
    """The first state of each loop grows, and each takes the place of the next: every round finds one more dimension
    that is unknown, and looks at the loops inside once more.
    """
    count, depth = 8, 8
    nodes: list[NodeProto] = []
    for level in reversed(range(depth)):
        states = [f"s{level}_{number}" for number in range(count)]
        after = [f"t{level}_{number}" for number in range(count)]
        nodes.append(helper.make_node("Concat", [states[0]] * 2, [after[0]], axis=0))
        nodes += [helper.make_node("Identity", [old], [new]) for old, new in zip(states, after[1:], strict=False)]
        nodes.append(helper.make_node("Identity", [f"go{level}"], [f"again{level}"]))
        given, made = [f"i{level}", f"go{level}", *states], [f"again{level}", *after]
        inputs, outputs = ([helper.make_empty_tensor_value_info(name) for name in names] for names in (given, made))
        body = helper.make_graph(nodes, "body", inputs, outputs)
        outer = [f"s{level - 1}_{number}" for number in range(count)] if level else ["x"] * count
        nodes = [helper.make_node("Loop", ["", "c", *outer], [f"r{level}_{n}" for n in range(count)], body=body)]
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, [2]), value("c", TensorProto.BOOL, [])]
    return model_of([*nodes, *node_list("y = Identity (r0_0)")], inputs=inputs).SerializeToString()


@case("a split into a million parts", "TooManyOperands")
def _many_outputs() -> bytes:
    node = helper.make_node("Split", ["x"], [f"y{n}" for n in range(1_000_000)], axis=0, num_outputs=1_000_000)
    return model_of([node]).SerializeToString()


@case("a node with a hundred thousand inputs", "TooManyOperands")
def _many_inputs() -> bytes:
    return model_of([helper.make_node("Sum", ["x"] * 100_000, ["y"])]).SerializeToString()


@case("a function that splits into many parts, called often", "TooManyNodes")
def _many_parts() -> bytes:
    parts = [f"y{n}" for n in range(5000)]
    split = helper.make_node("Split", ["x"], parts, axis=1, num_outputs=5000)
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function("own", "f", ["x"], ["y0"], [split], opsets)
    calls = [helper.make_node("f", ["x"], [f"r{n}"], domain="own") for n in range(100)]
    return model_of([*calls, *node_list("y = Identity (r0)")], functions=[function]).SerializeToString()


def _heavy_function_case(name: str, **fields: object) -> None:
    """A function with a hundred thousand of something that would be looked at in each of a thousand calls."""

    def build() -> bytes:
        function = function_of("f", "y = Relu (x)")
        function.MergeFrom(onnx.FunctionProto(**fields))  # pyright: ignore[reportArgumentType]
        calls = [helper.make_node("f", ["x"], [f"y{n}"], domain="own") for n in range(1000)]
        return model_of([*calls, *node_list("y = Identity (y0)")], functions=[function]).SerializeToString()

    case(name, "TooManyNodes")(build)


_heavy_function_case("a function of many operator sets", opset_import=[onnx.OperatorSetIdProto(domain="own")] * 100_000)
_heavy_function_case("a function of many attributes", attribute=[f"a{number}" for number in range(100_000)])
_heavy_function_case("a function of many types", value_info=[onnx.ValueInfoProto(name="x")] * 100_000)
_heavy_function_case(
    "a function of long attributes",
    node=[helper.make_node("RNN", ["x"] * 3, ["r"], hidden_size=1, activations=["Tanh"] * 100_000)],
)


@case("a branch of many initializers in a function", "TooManyNodes")
def _heavy_branch() -> bytes:
    tensors = [helper.make_tensor(f"w{n}", TensorProto.FLOAT, [], [0.0]) for n in range(20_000)]
    branch = helper.make_graph(node_list("r = Relu (x)"), "b", [], [helper.make_empty_tensor_value_info("r")], tensors)
    node = helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)
    function = helper.make_function("own", "f", ["x"], ["y"], [node], [helper.make_opsetid("", 21)])
    calls = [helper.make_node("f", ["x"], [f"y{n}"], domain="own") for n in range(1000)]
    return model_of([*calls, *node_list("y = Identity (y0)")], functions=[function]).SerializeToString()


@case("a branch that reads thousands of values", "ok")
def _many_captures() -> bytes:
    nodes = [helper.make_node("Relu", ["x"], [f"r{n}"]) for n in range(800)]
    total = [helper.make_node("Sum", [f"r{n}" for n in range(800)], ["s"])]
    branch = helper.make_graph(total, "b", [], [helper.make_empty_tensor_value_info("s")])
    nodes.append(helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch))
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, [2]), value("c", TensorProto.BOOL, [])]
    return model_of(nodes, inputs=inputs).SerializeToString()


# --- depth and recursion -------------------------------------------------------------------------------------


def _nested_ifs(depth: int) -> list[NodeProto]:
    nodes = node_list("y = Relu (x)")
    for _ in range(depth):
        branch = helper.make_graph(nodes, "b", [], [helper.make_empty_tensor_value_info("y")])
        other = helper.make_graph(node_list("z = Neg (x)"), "b", [], [helper.make_empty_tensor_value_info("z")])
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)]
    return nodes


@case("subgraphs nested too deep", "NestingTooDeep")
def _deep_ifs() -> bytes:
    return model_of(_nested_ifs(20)).SerializeToString()


@case("types nested too deep", "NestingTooDeep")
def _deep_types() -> bytes:
    """The bytes of seq(seq(...)), which protobuf would not even write."""
    data = b""
    for tag in (*(b"\x0a\x22" * 90), 0x12, 0x5A, 0x3A):  # elem_type, sequence_type; type, input, graph
        data = bytes([tag]) + encode_varint(len(data)) + data
    return data


@case("messages nested a million deep", "UnreadableModel")
def _deep_messages() -> bytes:
    return b"\x3a\xff\xff\x7f" + b"\x0a\xff\xff\x7f\x2a\xff\xff\x7f\x32\xff\xff\x7f" * 100_000


def _recursive(*functions: onnx.FunctionProto) -> Build:
    return lambda: model_of(node_list("y = own.f (x)"), functions=list(functions)).SerializeToString()


case("a function that calls itself", "CyclicGraph")(_recursive(function_of("f", "y = own.f (x)")))
case("functions that call each other", "CyclicGraph")(
    _recursive(function_of("f", "y = own.g (x)"), function_of("g", "h = own.f (x)", "y = own.f (h)"))
)


@case("a function that calls itself in a branch", "CyclicGraph")
def _recursion_in_branch() -> bytes:
    branch = helper.make_graph(node_list("r = own.f (x)"), "b", [], [helper.make_empty_tensor_value_info("r")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    function = helper.make_function("own", "f", ["x"], ["y"], [*node_list("c = IsNaN (x)"), node], [])
    return model_of(node_list("y = own.f (x)"), functions=[function]).SerializeToString()


@case("a subgraph handed to a function as an attribute", "UnsupportedOperators")
def _graph_attribute() -> bytes:
    branch = helper.make_graph(node_list("r = Relu (x)"), "b", [], [helper.make_empty_tensor_value_info("r")])
    node = helper.make_node("If", ["x"], ["y"])
    for name in ("then_branch", "else_branch"):
        node.attribute.append(AttributeProto(name=name, ref_attr_name="g", type=AttributeProto.GRAPH))
    function = helper.make_function("own", "f", ["x"], ["y"], [node], [helper.make_opsetid("", 21)], ["g"])
    return model_of(
        [helper.make_node("f", ["x"], ["y"], domain="own", g=branch)], functions=[function]
    ).SerializeToString()


# --- cycles and names ----------------------------------------------------------------------------------------

text_case("a node that reads its own output", "CyclicGraph", "g (float[2] x) => (float[2] y) { y = Add (x, y) }")
text_case(
    "two nodes that wait for each other", "CyclicGraph", "g (float[2] x) => (float[2] y) { y = Add (x, z) z = Neg (y) }"
)
text_case(
    "a branch that reads what its If makes",
    "CyclicGraph",
    """g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <
            then_branch = a () => (float[2] r) { r = Neg (y) },
            else_branch = b () => (float[2] s) { s = Neg (x) }
        >
    }""",
)
text_case("a value defined twice", "DuplicateName", "g (float[2] x) => (float[2] y) { y = Neg (x) y = Abs (x) }")
text_case(
    "a node that defines a name twice",
    "DuplicateName",
    "g (float[2] x) => (float[] y) <int64[1] k = {1}> { y, y = TopK (x, k) }",
)
text_case(
    "a node that redefines an input", "DuplicateName", "g (float[2] x, float[2] z) => (float[2] x) { x = Neg (z) }"
)
text_case("two inputs of one name", "DuplicateName", "g (float[2] x, float[2] x) => (float[2] y) { y = Neg (x) }")
text_case("two outputs of one name", "DuplicateName", "g (float[2] x) => (float[2] y, float[2] y) { y = Neg (x) }")
text_case("an output that nothing makes", "InvalidModel", "g (float[2] x) => (float[2] z) { y = Neg (x) }")
text_case("an input that nothing makes", "InvalidModel", "g (float[2] x) => (float[2] y) { y = Neg (z) }")
text_case(
    "an output that is optional and absent",
    "InvalidModel",
    """g (float[2] x) => (float[] m) { y, m = own.f (x) }
    <domain: "own", opset_import: ["": 21]> f (x, o) => (y, o) { y = Neg (x) }""",
)
text_case("no outputs", "InvalidModel", "g (float[2] x) => () { y = Neg (x) }")
text_case("no nodes and no outputs", "InvalidModel", "g () => () { }")


@case("two initializers of one name", "DuplicateName")
def _same_initializers() -> bytes:
    tensors = [helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])] * 2
    return model_of(node_list("y = Add (x, w)"), initializers=tensors).SerializeToString()


@case("two functions of one name", "DuplicateName")
def _same_functions() -> bytes:
    functions = [function_of("f", "y = Relu (x)"), function_of("f", "y = Neg (x)")]
    return model_of(node_list("y = own.f (x)"), functions=functions).SerializeToString()


@case("a domain imported in two versions", "DuplicateName")
def _same_domains() -> bytes:
    model = model_of(node_list("y = Relu (x)"))
    model.opset_import.append(helper.make_opsetid("ai.onnx", 20))
    return model.SerializeToString()


@case("an attribute that stands twice", "InvalidNode")
def _same_attributes() -> bytes:
    node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.1)
    node.attribute.append(node.attribute[0])
    return model_of([node]).SerializeToString()


@case("long names that expand", "ok")
def _long_names() -> bytes:
    """Some kilobytes of name, joined from the functions around, in front of each of the nodes."""
    long = "n" * 4000
    relu = helper.make_node("Relu", ["x"], [long], name=long)
    neg = helper.make_node("Neg", [long], ["y"])
    function = helper.make_function("own", "f", ["x"], ["y"], [relu, neg], [helper.make_opsetid("", 21)])
    calls = [
        helper.make_node("f", ["x"], [f"y{n}" if n else "y"], name=long[: 3000 + n], domain="own") for n in range(500)
    ]
    return model_of(calls, functions=[function]).SerializeToString()


@case("a name of ten megabytes", "NameTooLong")
def _long_unknown_name() -> bytes:
    return model_of([helper.make_node("Relu", ["n" * 10_000_000], ["y"])]).SerializeToString()


@case("constants in a function that is called often", "ok")
def _repeated_constants() -> bytes:
    """Each call must share the four megabytes."""
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [1_000_000], [0.5] * 1_000_000)
    constant = helper.make_node("Constant", [], ["w"], value=tensor)
    nodes = [constant, *node_list("y = Add (x, w)")]
    function = helper.make_function("own", "f", ["x"], ["y"], nodes, [helper.make_opsetid("", 21)])
    calls = [helper.make_node("f", ["x" if not n else f"y{n}"], [f"y{n + 1}"], domain="own") for n in range(300)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    return model_of([*calls, *node_list("y = Neg (y300)")], functions=[function], inputs=inputs).SerializeToString()


@case("attributes of a reference operator in a function that is called often", "ConstantTooLarge")
def _repeated_attributes() -> bytes:
    words = list(range(5000))
    attributes = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0]}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], ngram_indexes=words, pool_int64s=words, **attributes)
    function = helper.make_function("own", "f", ["x"], ["y"], [node], [helper.make_opsetid("", 21)])
    calls = [helper.make_node("f", ["x"], [f"y{n}" if n else "y"], domain="own") for n in range(1200)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, [3])]
    return model_of(calls, functions=[function], inputs=inputs).SerializeToString()


@case("an impossible shape where nothing is imported", "ok")
def _unused_shape() -> bytes:
    tensor = TensorProto(name="w", data_type=1, dims=[HUGE] * 100_000)
    outputs = [helper.make_empty_tensor_value_info("r")]
    then = helper.make_graph(node_list("r = Relu (x)"), "then", [], outputs)
    other = helper.make_graph(node_list("r = Identity (w)"), "other", [], outputs, [tensor])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    return model_of([node], initializers=[condition]).SerializeToString()


# --- files that are no models --------------------------------------------------------------------------------


@case("a model cut short", "UnreadableModel")
def _cut_short() -> bytes:
    data = model_of(node_list("y = Relu (x)")).SerializeToString()
    return data[: len(data) * 2 // 3]


case("nothing", "UnreadableModel")(lambda: b"")
case("something else", "UnreadableModel")(lambda: b"\x89PNG\r\n\x1a\n" * 1000)
case("a length of 2 ** 63", "UnreadableModel")(lambda: b"\x3a" + encode_varint((1 << 63) - 1))
case("a number without end", "UnreadableModel")(lambda: b"\x08" + b"\xff" * 1000)
case("a model without a graph", "UnreadableModel")(lambda: ModelProto(ir_version=10).SerializeToString())
case("text that is not UTF-8", "UnreadableModel")(
    lambda: model_of(node_list("y = Relu (x)")).SerializeToString().replace(b"Relu", b"Re\xff\xfe")
)

# --- operator sets and domains -------------------------------------------------------------------------------


def _with_opset(version: int | None) -> Build:
    def build() -> bytes:
        model = model_of(node_list("y = Relu (x)"))
        del model.opset_import[:]
        if version is not None:
            model.opset_import.append(helper.make_opsetid("", version))
        return model.SerializeToString()

    return build


for _version in (29, 0, -1, 1 << 31, HUGE, -(1 << 63)):
    case(f"opset {_version}", "UnsupportedOpset")(_with_opset(_version))
case("no opset", "UnsupportedOpset")(_with_opset(None))


@case("a known domain in a version from far away", "UnsupportedOperators")
def _huge_domain_version() -> bytes:
    model = model_of([helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml")])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", HUGE))
    return model.SerializeToString()


text_case("an unknown domain", "UnsupportedOperators", "g (float[2] x) => (float[2] y) { y = own.f (x) }")
text_case("an unknown operator", "UnsupportedOperators", "g (float[2] x) => (float[2] y) { y = Frobnicate (x) }")
case("a node without an operator", "InvalidNode")(
    lambda: model_of([NodeProto(input=["x"], output=["y"])]).SerializeToString()
)

# --- attributes ----------------------------------------------------------------------------------------------

node_case("an unknown attribute", "InvalidNode", "float[2] x", "Relu <surprise = 1> (x)")
node_case("an attribute of the wrong type", "InvalidNode", "float[2] x", "LeakyRelu <alpha = 1> (x)")
node_case("an attribute that is missing", "InvalidNode", "float[2] x", "Cast (x)")
node_case(
    "an attribute of a function that is not there", "InvalidNode", "float[2] x", "LeakyRelu <alpha: float = @a> (x)"
)
node_case("too many inputs", "InvalidNode", "float[2] x", "Relu (x, x)")
node_case("too few inputs", "InvalidNode", "float[2] x", "Add (x)")
node_case("an input of the wrong type", "InvalidNode", "float[2] x", "Not (x)")
node_case("an axis out of range", "InvalidNode", "float[2] x", "Softmax <axis = 7> (x)")
node_case("an axis far out of range", "InvalidNode", "float[2] x", f"ArgMax <axis = {HUGE}> (x)")
node_case("axes that repeat", "InvalidNode", "float[2,2] x | int64[2] a = {0, -2}", "ReduceSum (x, a)")
node_case("a permutation that is none", "InvalidNode", "float[2,2] x", "Transpose <perm = [0, 0]> (x)")
node_case("a stride of 0", "InvalidNode", "float[1,1,4] x, float[1,1,2] w", "Conv <strides = [0]> (x, w)")
node_case("a dilation of 0", "InvalidNode", "float[1,1,4] x, float[1,1,2] w", "Conv <dilations = [0]> (x, w)")
node_case("a group of 0", "InvalidNode", "float[1,1,4] x, float[1,1,2] w", "Conv <group = 0> (x, w)")
node_case("a kernel of 0", "InvalidNode", "float[1,1,4] x", "MaxPool <kernel_shape = [0]> (x)")
node_case(
    "a pool with a stride of 0", "InvalidNode", "float[1,1,4] x", "AveragePool <kernel_shape = [2], strides = [0]> (x)"
)
node_case(
    "an LpPool with a stride of 0", "InvalidNode", "float[1,1,4] x", "LpPool <kernel_shape = [2], strides = [0]> (x)"
)
node_case(
    "a transposed convolution with a stride of 0",
    "InvalidNode",
    "float[1,1,4] x, float[1,1,2] w",
    "ConvTranspose <strides = [0]> (x, w)",
)
node_case(
    "an unpooling with a stride of 0",
    "InvalidNode",
    "float[1,1,4] x, int64[1,1,4] i",
    "MaxUnpool <kernel_shape = [2], strides = [0]> (x, i)",
)
node_case("negative pads", "InvalidNode", "float[1,1,4] x, float[1,1,2] w", "Conv <pads = [-3, -3]> (x, w)")
node_case("blocks of 0", "InvalidNode", "float[1,4,4,4] x", "SpaceToDepth <blocksize = 0> (x)")
node_case("blocks whose square is 0", "InvalidNode", "float[1,4,4,4] x", f"DepthToSpace <blocksize = {1 << 32}> (x)")
node_case(
    "a normalisation in 0 groups",
    "InvalidNode",
    "float[1,4,4] x, float[4] s",
    "GroupNormalization <num_groups = 0> (x, s, s)",
)
node_case(
    "frames that never advance",
    "InvalidNode",
    "float[1,16,1] x | int64 step = {0}, int64 length = {4}",
    "STFT (x, step, , length)",
)
node_case(
    "scales that are not numbers", "InvalidNode", "float[1,1,4,4] x | float[4] s = {1, 1, nan, nan}", "Resize (x, , s)"
)
node_case(
    "scales that are infinite", "InvalidNode", "float[1,1,4,4] x | float[4] s = {1, 1, inf, inf}", "Resize (x, , s)"
)
node_case(
    "a reshape of nothing to an unknown dimension",
    "InvalidNode",
    "float[0,4] x | int64[2] s = {0, -1}",
    "Reshape (x, s)",
)
node_case("two unknown dimensions", "InvalidNode", "float[4,4] x | int64[2] s = {-1, -1}", "Reshape (x, s)")
node_case(
    "a slice with a step of 0",
    "InvalidNode",
    "float[4] x | int64[1] a = {0}, int64[1] b = {4}",
    "Slice (x, a, b, a, a)",
)
node_case("an einsum that makes no sense", "InvalidNode", "float[4] x", 'Einsum <equation = "i->ii"> (x)')
# These four crash or hang the onnx package itself, so they must not reach it.
node_case(
    "an axis that onnx does not check", "InvalidNode", "float[2,2] x", f"LayerNormalization <axis = {1 << 31}> (x, x)"
)
node_case(
    "batch dimensions that onnx does not check",
    "InvalidNode",
    "float[1,1,3,3] x, int64[m,k] i",
    "GatherND <batch_dims = -2> (x, i)",
)
node_case("fewer parts than outputs", "InvalidNode", "float[4] x, int64[p] p", "Split <num_outputs = 2> (x, p)")
node_case("an equation that is not text", "InvalidNode", "float[4] x", 'Einsum <equation = "éééé"> (x)')
text_case(
    "a dimension divided by 0",
    "InvalidNode",
    """g (float[n,4] x) => (float[] y) <int64[1] zero = {0}> {
        s = Shape (x) n = Gather (s, zero) d = Div (n, zero) y = Expand (x, d)
    }""",
)

# --- types and tensors ---------------------------------------------------------------------------------------

text_case("an input of strings", "UnsupportedType", "g (string[2] x) => (string[2] y) { y = Identity (x) }")
text_case("an input that is a sequence", "UnsupportedType", "g (seq(float[2]) x) => (float[] y) { y = Identity (x) }")
text_case(
    "an input of complex numbers", "UnsupportedType", "g (complex64[2] x) => (complex64[2] y) { y = Identity (x) }"
)


def _input_case(name: str, error: str, info: onnx.ValueInfoProto) -> None:
    case(name, error)(lambda: model_of(node_list("y = Identity (x)"), inputs=[info]).SerializeToString())


_input_case("an input of an unknown type", "UnsupportedType", helper.make_tensor_value_info("x", 99, [2]))
_input_case("an input without a type", "UnsupportedType", onnx.ValueInfoProto(name="x"))
_input_case("an input of a negative dimension", "InvalidShape", helper.make_tensor_value_info("x", 1, [-7]))
_input_case("an input of too high a rank", "RankTooHigh", helper.make_tensor_value_info("x", 1, [1] * 33))
_input_case("an input of a rank of a million", "RankTooHigh", helper.make_tensor_value_info("x", 1, [1] * 1_000_000))
_input_case("an input that is too large", "TensorTooLarge", helper.make_tensor_value_info("x", 1, [1 << 40]))
_input_case("an input whose size overflows", "TensorTooLarge", helper.make_tensor_value_info("x", 1, [1 << 40] * 8))
_input_case(
    "an input of an overflowing dimension", "InvalidShape", helper.make_tensor_value_info("x", 1, [(1 << 63) - 1])
)
_input_case("dimensions with long names", "ok", helper.make_tensor_value_info("x", 1, ["n" * 4000] * 20))


def _tensor_case(name: str, error: str, **fields: object) -> None:
    tensor = TensorProto(name="w", **fields)  # pyright: ignore[reportArgumentType]

    def initializer() -> bytes:
        return model_of(node_list("y = Identity (w)"), initializers=[tensor]).SerializeToString()

    def constant() -> bytes:
        return model_of([helper.make_node("Constant", [], ["y"], value=tensor)]).SerializeToString()

    case(f"an initializer {name}", error)(initializer)
    case(f"a Constant {name}", error)(constant)


_tensor_case("of negative size", "InvalidShape", data_type=1, dims=[-1])
_tensor_case("whose size overflows", "InvalidShape", data_type=1, dims=[1 << 40, 1 << 40])
_tensor_case("whose size overflows to 0", "InvalidShape", data_type=1, dims=[1 << 32, 1 << 32, 0])
_tensor_case("of too high a rank", "RankTooHigh", data_type=1, dims=[1] * 33, raw_data=b"1234")
_tensor_case("of a rank of 10000", "RankTooHigh", data_type=1, dims=[1] * 10_000, raw_data=b"1234")
_tensor_case("without its data", "InvalidTensor", data_type=1, dims=[1 << 34])
_tensor_case("with too little data", "InvalidTensor", data_type=1, dims=[4], raw_data=b"1234")
_tensor_case("with two values", "InvalidTensor", data_type=1, dims=[1], raw_data=b"1234", float_data=[1.0])
_tensor_case("of strings", "UnsupportedType", data_type=TensorProto.STRING, dims=[1], string_data=[b"x"])
_tensor_case("of an unknown type", "UnsupportedType", data_type=99, dims=[1], raw_data=b"1234")
_tensor_case("of no type", "UnsupportedType", dims=[1], raw_data=b"1234")
_tensor_case("of bools that are neither", "InvalidTensor", data_type=TensorProto.BOOL, dims=[1], raw_data=b"\x02")
_tensor_case(
    "outside the file",
    "UnsafeExternalData",
    data_type=1,
    dims=[1],
    data_location=TensorProto.EXTERNAL,
    external_data=[onnx.StringStringEntryProto(key="location", value="/etc/passwd")],
)


@case("a sparse initializer", "UnsupportedType")
def _sparse() -> bytes:
    model = model_of(node_list("y = Identity (w)"))
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [HUGE]))
    return model.SerializeToString()


# --- results too large, computed from inputs -----------------------------------------------------------------

X = "float[4] x"
node_case("a rank beyond the limit", "RankTooHigh", f"{X} | int64[40] s = {{{', '.join(['1'] * 40)}}}", "Expand (x, s)")
node_case(
    "a rank beyond the limit by axes",
    "RankTooHigh",
    f"{X} | int64[40] s = {{{', '.join(map(str, range(40)))}}}",
    "Unsqueeze (x, s)",
)
node_case("an expansion", "TensorTooLarge", f"float[1] x | int64[1] s = {{{1 << 40}}}", "Expand (x, s)")
node_case("an expansion that overflows", "InvalidShape", f"float[1] x | int64[1] s = {{{HUGE}}}", "Expand (x, s)")
node_case("a tile", "TensorTooLarge", f"{X} | int64[1] s = {{{1 << 40}}}", "Tile (x, s)")
node_case("a pad", "TensorTooLarge", f"{X} | int64[2] s = {{{1 << 40}, 0}}", "Pad (x, s)")
node_case("a product of vectors", "TensorTooLarge", f"float[{1 << 20},1] x, float[1,{1 << 20}] z", "MatMul (x, z)")
node_case("an outer product by einsum", "TensorTooLarge", f"float[{1 << 20}] x", 'Einsum <equation = "i,j->ij"> (x, x)')
node_case(
    "a convolution with huge pads",
    "TensorTooLarge",
    "float[1,1,4] x, float[1,1,2] w",
    f"Conv <pads = [{1 << 30}, {1 << 30}]> (x, w)",
)
node_case(
    "a convolution with huge pads and strides",
    "TensorTooLarge",
    "float[1,1,4] x, float[1,1,2] w",
    f"Conv <pads = [{(1 << 31) - 1}, {(1 << 31) - 1}], strides = [{(1 << 31) - 1}]> (x, w)",
)
node_case(
    "a convolution with huge dilations",
    "InvalidNode",
    "float[1,1,4] x, float[1,1,2] w",
    f"Conv <dilations = [{(1 << 31) - 1}]> (x, w)",
)
node_case(
    "a convolution with pads that overflow",
    "InvalidNode",
    "float[1,1,4] x, float[1,1,2] w",
    f"Conv <pads = [{HUGE}, {HUGE}]> (x, w)",
)
node_case("a pool with a huge kernel", "InvalidNode", "float[1,1,4] x", f"AveragePool <kernel_shape = [{1 << 30}]> (x)")
node_case(
    "a pool with a huge kernel and pads",
    "TensorTooLarge",
    "float[1,1,4] x",
    f"AveragePool <kernel_shape = [{1 << 30}], pads = [{1 << 30}, {1 << 30}]> (x)",
)
node_case(
    "a transposed convolution with huge strides",
    "TensorTooLarge",
    "float[1,1,4] x, float[1,1,2] w",
    f"ConvTranspose <strides = [{(1 << 31) - 1}]> (x, w)",
)
node_case(
    "a transposed convolution with a huge shape",
    "TensorTooLarge",
    "float[1,1,4] x, float[1,1,2] w",
    f"ConvTranspose <output_shape = [{(1 << 31) - 1}]> (x, w)",
)
node_case("a resize", "TensorTooLarge", "float[1,1,4,4] x | float[4] s = {1, 1, 1000000, 1000000}", "Resize (x, , s)")
node_case(
    "a resize to sizes",
    "TensorTooLarge",
    f"float[1,1,4,4] x | int64[4] s = {{1, 1, {1 << 20}, {1 << 20}}}",
    "Resize (x, , , s)",
)
node_case(
    "an upsampling",
    "TensorTooLarge",
    "float[1,1,4,4] x | float[4] s = {1, 1, 1000000, 1000000}",
    "Upsample (x, s)",
    opset=9,
)
node_case("a gather", "TensorTooLarge", f"float[1,{1 << 20}] x, int64[{1 << 20}] i", "Gather (x, i)")
node_case(
    "a region of interest",
    "TensorTooLarge",
    "float[1,1,4,4] x, float[1,4] r, int64[1] b",
    f"RoiAlign <output_height = {1 << 20}, output_width = {1 << 20}> (x, r, b)",
)
node_case(
    "a Fourier transform of a huge length",
    "TensorTooLarge",
    f"float[1,4,1] x | int64 length = {{{1 << 40}}}",
    "DFT (x, length)",
)
node_case(
    "a grid of huge size",
    "TensorTooLarge",
    f"float[1,2,3] x | int64[4] s = {{1, 1, {1 << 20}, {1 << 20}}}",
    "AffineGrid (x, s)",
)
node_case(
    "columns that become a huge image",
    "TensorTooLarge",
    f"float[1,1,n] x | int64[2] s = {{{1 << 20}, {1 << 20}}}, int64[2] b = {{1, 1}}",
    "Col2Im (x, s, b)",
)
node_case("a crop that pads", "TensorTooLarge", f"{X} | int64[1] s = {{{1 << 40}}}", "CenterCropPad (x, s)")

# --- results too large, computed from nothing but constants --------------------------------------------------

node_case(
    "a constant range",
    "ConstantTooLarge",
    f"| int64 a = {{0}}, int64 b = {{{10**12}}}, int64 c = {{1}}",
    "Range (a, b, c)",
)
node_case(
    "a constant range of tiny steps",
    "ConstantTooLarge",
    "| float a = {0}, float b = {1}, float c = {1e-12}",
    "Range (a, b, c)",
)
node_case(
    "a constant range without end", "InvalidNode", "| float a = {0}, float b = {inf}, float c = {1}", "Range (a, b, c)"
)
node_case(
    "a constant range of no step", "InvalidNode", "| int64 a = {0}, int64 b = {9}, int64 c = {0}", "Range (a, b, c)"
)
node_case(
    "a constant expansion", "ConstantTooLarge", f"| float[1] x = {{1}}, int64[1] s = {{{10**10}}}", "Expand (x, s)"
)
node_case("a constant tile", "ConstantTooLarge", f"| float[1] x = {{1}}, int64[1] s = {{{10**10}}}", "Tile (x, s)")
node_case("a constant pad", "ConstantTooLarge", f"| float[1] x = {{1}}, int64[2] s = {{{10**10}, 0}}", "Pad (x, s)")
node_case(
    "a constant one-hot",
    "ConstantTooLarge",
    f"| int64[1] i = {{1}}, int64 d = {{{10**10}}}, float[2] v = {{0, 1}}",
    "OneHot (i, d, v)",
)
node_case("a constant of a shape", "ConstantTooLarge", f"| int64[2] s = {{{10**5}, {10**5}}}", "ConstantOfShape (s)")
node_case(
    "a constant of an overflowing shape", "InvalidShape", f"| int64[2] s = {{{HUGE}, {HUGE}}}", "ConstantOfShape (s)"
)
node_case("a constant of a negative shape", "InvalidNode", "| int64[1] s = {-1}", "ConstantOfShape (s)")
node_case(
    "a constant resize",
    "TensorTooLarge",
    "| float[1,1,1,1] x = {1}, float[4] s = {1, 1, 100000, 100000}",
    "Resize (x, , s)",
)
node_case(
    "a constant upsampling",
    "TensorTooLarge",
    "| float[1,1,1,1] x = {1}, float[4] s = {1, 1, 100000, 100000}",
    "Upsample (x, s)",
    opset=9,
)
node_case("a random tensor", "ConstantTooLarge", "", f"RandomNormal <shape = [{10**5}, {10**5}]> ()")
node_case("a window function", "ConstantTooLarge", f"| int64 n = {{{10**10}}}", "HannWindow (n)")
node_case(
    "a weight matrix of mels",
    "ConstantTooLarge",
    f"| int64 n = {{{10**6}}}, float a = {{0}}, float b = {{8000}}",
    "MelWeightMatrix (n, n, n, a, b)",
)


def _expanded_case(name: str, error: str, call: str, dims: str = "100000000") -> None:
    """A node on 400 MB of constants that an Expand would make, which is within the limit."""
    text_case(
        name,
        error,
        f"g () => (float[] y) <float one = {{1}}, int64[{dims.count(',') + 1}] s = {{{dims}}}>"
        f"{{ b = Expand (one, s) y = {call} }}",
    )


_expanded_case("a concatenation of large constants", "ConstantTooLarge", "Concat <axis = 0> (b, b)")
_expanded_case("a large constant, widened", "ConstantTooLarge", "Cast <to = 11> (b)")
_expanded_case("an outer product of constants", "ConstantTooLarge", 'Einsum <equation = "i,j->ij"> (b, b)')
_expanded_case(
    "a unit matrix like a large constant", "ConstantTooLarge", "EyeLike <dtype = 11> (b)", dims="10000, 10000"
)
_expanded_case("a triangle of a large constant", "ConstantTooLarge", "Trilu (b)", dims="10000, 10000")
text_case(
    "a product of constant vectors",
    "ConstantTooLarge",
    """g () => (float[] y) <float one = {1}, int64[2] s = {1000000, 1}, int64[2] t = {1, 1000000}> {
        a = Expand (one, s) b = Expand (one, t) y = MatMul (a, b)
    }""",
)
text_case(
    "a gather with large constant indices",
    "ConstantTooLarge",
    """g () => (float[] y) <float one = {1}, int64 zero = {0}, int64[2] s = {1, 1000000}, int64[1] t = {10000000}> {
        a = Expand (one, s) i = Expand (zero, t) y = Gather <axis = 0> (a, i)
    }""",
)
text_case(
    "constants that take many steps to fold",
    "ok",
    """g () => (float[] y) <float one = {1}, int64[1] s = {4096}> {
        a = Expand (one, s) y = Einsum <equation = "i,j,k,l->"> (a, a, a, a)
    }""",
)
text_case(
    "a constant convolution over huge pads",
    "TensorTooLarge",
    f"""g () => (float[] y) <float[1,1,1] x = {{1}}> {{
        y = Conv <pads = [{(1 << 31) - 1}, {(1 << 31) - 1}], strides = [{(1 << 31) - 1}]> (x, x)
    }}""",
)
text_case(
    "a chain of constants that grows",
    "ConstantTooLarge",
    "g () => (float[] y) <float[1] one = {1}> { a0 = Identity (one)"
    + " ".join(f"a{n + 1} = Concat <axis = 0> (a{n}, a{n})" for n in range(60))
    + " y = Identity (a60) }",
)
text_case(
    "large constants by the hundred",
    "ok",
    "g () => (float[] y) <float one = {1}, int64[1] s = {60000000}> {"
    + " ".join(f"a{n} = Expand (one, s) b{n} = Exp (a{n})" for n in range(100))
    + " y = Sum ("
    + ", ".join(f"b{n}" for n in range(100))
    + ") }",
)

# --- loops that must not run ---------------------------------------------------------------------------------


def _loop_case(name: str, error: str, trips: int, stacks: bool = True) -> None:
    """A loop of constant trips on a constant state."""
    row, output = (", float[4] u", ", float[] z") if stacks else ("", "")
    text_case(
        name,
        error,
        f"""g () => (float[4] y{output}) <int64 n = {{{trips}}}, float[4] x = {{1, 2, 3, 4}}> {{
            y{", z" if stacks else ""} = Loop <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t{row}) {{
                d = Identity (c) t = Neg (s) {"u = Neg (s)" if stacks else ""}
            }}> (n, , x)
        }}""",
    )


_loop_case("a loop of many constant trips", "ok", HUGE, stacks=False)
_loop_case("a loop that stacks trips without number", "InvalidShape", HUGE)
_loop_case("a loop that stacks many trips", "ConstantTooLarge", 10**10)
_loop_case("a loop of negative trips", "ok", -5)
text_case(
    "a scan of many constant steps",
    "ok",
    """g () => (float[] y) <float one = {1}, int64[1] s = {100000000}> {
        b = Expand (one, s)
        y = Scan <num_scan_inputs = 1, body = b (float s0, float e) => (float s1) { s1 = Add (s0, e) }> (one, b)
    }""",
)

# --- dimensions that are expressions -------------------------------------------------------------------------


def _dims_case(name: str, error: str, step: str, steps: int, inputs: str = "float[n,m] x") -> None:
    """Dimensions d0, and each next from the one before."""
    calls = " ".join(step.format(old=f"d{number}", new=f"d{number + 1}") for number in range(steps))
    text_case(
        name,
        error,
        f"g ({inputs}) => (float[] y) <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}> {{"
        f"s = Shape (x) n = Gather (s, zero) m = Gather (s, one) d0 = Add (n, one) {calls}"
        f" y = ConstantOfShape (d{steps}) }}",
    )


_dims_case("a dimension that is squared again and again", "ok", "{new} = Mul ({old}, {old})", 60)
_dims_case("a polynomial of many terms", "ok", "t{new} = Add ({old}, m) {new} = Mul (t{new}, {old})", 60)
_dims_case("a coefficient that is doubled", "ConstantTooLarge", "{new} = Add ({old}, {old})", 200)
_dims_case("a division inside a division", "ok", "t{new} = Add ({old}, one) {new} = Div (t{new}, two)", 200)
_dims_case(
    "a maximum inside a maximum",
    "ok",
    "t{new} = Mul ({old}, m) q{new} = Div (t{new}, n) {new} = Max (q{new}, {old})",
    200,
)


@case("a sum of many different dimensions", "ShapeTooComplex")
def _many_dimensions() -> bytes:
    inputs = [helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, [f"n{n}"]) for n in range(5000)]
    node = helper.make_node("Concat", [info.name for info in inputs], ["y"], axis=0)
    return model_of([node], inputs=inputs).SerializeToString()


@case("a product of many different sums", "ok")
def _many_sums() -> bytes:
    """Twelve dimensions that are sums: their product has 4096 terms."""
    shape = [f"n{n}" for n in range(12)]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    pads = helper.make_tensor("p", TensorProto.INT64, [24], [1] * 24)
    return model_of(node_list("y = Pad (x, p)"), inputs=[value], initializers=[pads]).SerializeToString()


@case("a concatenation of thousands", "ok")
def _wide_concatenation() -> bytes:
    node = helper.make_node("Concat", ["w"] * 3000, ["y"], axis=0)
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    return model_of([node], initializers=[tensor]).SerializeToString()


@case("values that depend on thousands of small inputs", "ok")
def _many_origins() -> bytes:
    """What each value depends on must not be written down for each."""
    inputs = [helper.make_tensor_value_info(f"x{n}", TensorProto.INT64, [1]) for n in range(1000)]
    nodes = [helper.make_node("Max", [info.name for info in inputs], ["r0"])]
    nodes += [helper.make_node("Neg", [f"r{n}"], [f"r{n + 1}"]) for n in range(2000)]
    return model_of([*nodes, *node_list("y = Identity (r2000)")], inputs=inputs).SerializeToString()


@case("a graph in reverse order", "ok")
def _reversed() -> bytes:
    nodes = [helper.make_node("Relu", [f"r{n}"], [f"r{n + 1}"]) for n in range(2000)]
    nodes += [helper.make_node("Identity", ["x"], ["r0"]), helper.make_node("Identity", ["r2000"], ["y"])]
    return model_of(nodes[::-1]).SerializeToString()


# --- arrays that every node would have to itself -------------------------------------------------------------


def _repeated_case(name: str, error: str, count: int, call: str, x: str, constants: str = "") -> None:
    """One node again and again; {n} in the call is its number."""
    calls = " ".join(f"y{number} = {call.format(n=number + 1)}" for number in range(count))
    text_case(name, error, f"g ({x}) => (float[] y) <{constants}> {{ {calls} y = Identity (y0) }}")


_repeated_case("the same Fourier transforms", "ok", 1000, "DFT (x)", "float[1,1024,1] x")
_repeated_case(
    "the same resizes", "ok", 500, 'Resize <mode = "cubic"> (x, , s)', "float[1,100] x", "float[2] s = {1, 1000}"
)


def _different_case(
    name: str, node: Callable[[int], NodeProto], shape: list[int], tensors: Callable[[int], TensorProto]
) -> None:
    def build() -> bytes:
        numbers = range(200)
        nodes = [*(node(number) for number in numbers), *node_list("y = Identity (y0)")]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        return model_of(nodes, inputs=inputs, initializers=[tensors(n) for n in numbers]).SerializeToString()

    case(name, "ok")(build)


_different_case(
    "Fourier transforms of many lengths",
    lambda n: helper.make_node("DFT", ["x", f"length{n}"], [f"y{n}"]),
    [1, 2048, 1],
    lambda n: helper.make_tensor(f"length{n}", TensorProto.INT64, [], [1000 + n]),
)
_different_case(
    "resizes of many lengths",
    lambda n: helper.make_node("Resize", ["x", "", "", f"size{n}"], [f"y{n}"], mode="cubic"),
    [1, 100],
    lambda n: helper.make_tensor(f"size{n}", TensorProto.INT64, [2], [1, 400_000 + n]),
)


def _scaled_weights(weights: int, calls: int, form: str) -> Build:
    """Products with constant weights, each scaled: folding the scale makes other weights of each."""

    def build() -> bytes:
        tensor = helper.make_tensor("w", TensorProto.FLOAT, [weights, 1], b"\0" * 4 * weights, raw=True)
        constant = [helper.make_node("Constant", [], ["w"], value=tensor)]
        product = node_list("p = MatMul (x, w)", "y = Mul (p, c)")
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, weights])]
        factor = [helper.make_tensor("c", TensorProto.FLOAT, [], [1.5])]
        opsets = [helper.make_opsetid("", 21)]
        if form == "function":
            function = helper.make_function("own", "f", ["x", "c"], ["y"], [*constant, *product], opsets)
            nodes = [helper.make_node("f", ["x", "c"], [f"y{n}"], domain="own") for n in range(calls)]
            return model_of(
                [*nodes, *_sum(calls)], inputs=inputs, initializers=factor, functions=[function]
            ).SerializeToString()
        if form == "branches":
            branch = helper.make_graph(product, "b", [], [helper.make_empty_tensor_value_info("y")])
            nodes = [
                helper.make_node("If", ["i"], [f"y{n}"], then_branch=branch, else_branch=branch) for n in range(calls)
            ]
            inputs.append(helper.make_tensor_value_info("i", TensorProto.BOOL, []))
        else:
            nodes = []
            for n in range(calls):
                nodes += node_list(f"p{n} = MatMul (x{n}, w)", f"y{n} = Mul (p{n}, c)")
            inputs = [helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, [1, weights]) for n in range(calls)]
        parts = {"inputs": inputs, "initializers": [*factor, tensor]}
        return model_of([*nodes, *_sum(calls)], **parts).SerializeToString()

    return build


def _sum(count: int) -> list[NodeProto]:
    return [helper.make_node("Sum", [f"y{number}" for number in range(count)], ["y"])]


case("large weights scaled in a function that is called often", "ok")(_scaled_weights(1_000_000, 300, "function"))
case("large weights scaled in many branches", "ok")(_scaled_weights(1_000_000, 150, "branches"))
case("small weights that many products scale", "ok")(_scaled_weights(16_000, 400, "products"))


@case("weights made large by a broadcast and scaled", "ok")
def _broadcast_weights() -> bytes:
    nodes: list[NodeProto] = []
    for n in range(10):
        nodes += node_list(f"w{n} = Expand (w, s)", f"p{n} = MatMul (x{n}, w{n})", f"y{n} = Mul (p{n}, c)")
    value = helper.make_tensor_value_info
    size = 10_000
    tensors = [
        helper.make_tensor("w", TensorProto.FLOAT, [size, 1], b"\0" * 4 * size, raw=True),
        helper.make_tensor("c", TensorProto.FLOAT, [size], b"\0" * 4 * size, raw=True),
        helper.make_tensor("s", TensorProto.INT64, [2], [size, size]),
    ]
    inputs = [value(f"x{n}", TensorProto.FLOAT, [1, size]) for n in range(10)]
    return model_of([*nodes, *_sum(10)], inputs=inputs, initializers=tensors).SerializeToString()


@case("numbers of an attribute in a function that is called often", "ok")
def _repeated_numbers() -> bytes:
    constant = helper.make_node("Constant", [], ["w"], value_ints=[1] * 10_000)
    nodes = [constant, *node_list("y = Add (x, w)")]
    function = helper.make_function("own", "f", ["x"], ["y"], nodes, [helper.make_opsetid("", 21)])
    calls = [helper.make_node("f", ["x"], [f"y{n}"], domain="own") for n in range(1000)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, [1])]
    return model_of([*calls, *node_list("y = Identity (y0)")], functions=[function], inputs=inputs).SerializeToString()
