"""Vector math: measured against references of higher precision, in units in the last place of the rounded result.

The default run samples; `-m slow` sweeps all 2^32 floats of every function of one argument.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.codegen.emit_kernel import Registers
from foretell.codegen.math_lanes import Instructions
from foretell.codegen.vector_math import (
    BINARY_FUNCTIONS,
    INTEGER_FUNCTIONS,
    MATH_FUNCTIONS,
    UNARY_FUNCTIONS,
    math_function,
    try_constant_power,
)
from foretell.target.resolve import resolve_target

Array = NDArray[Any]
PLAIN, UNFUSED, AVX512 = Instructions(), Instructions(fused=False), Instructions(avx512=True)
Emit = Callable[[ir.IRBuilder, list[ir.Value]], ir.Value]

I64, POINTER = ir.IntType(64), ir.PointerType()
WIDER = {np.float32: np.float64, np.float64: np.longdouble}
"""What references are computed in: at least 11 bits more."""
LIMIT = 4.0
AIM: dict[str, float] = {"exp": 2.0, "log": 2.0, "tanh": 2.0, "sigmoid": 2.0, "erf": 2.0}
"""The functions that models spend their time in are held to less, in float32."""
UNARY, ODD = sorted(UNARY_FUNCTIONS - {"normal_cdf"}), "asin asinh atan atanh erf expm1 log1p sin sinh tan tanh".split()

with_instructions = pytest.mark.parametrize(
    "instructions",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(UNFUSED, id="unfused"),
        pytest.param(
            AVX512,
            id="avx512",
            marks=pytest.mark.skipif(not llvm.get_host_cpu_features().get("avx512dq"), reason="needs AVX-512"),
        ),
    ],
)
needs_long_double = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="float64 needs a reference of higher precision"
)


# --- kernels: a loop over arrays around one function ---------------------------------------------------------------


def machine(triple: str, cpu: str, features: str = "") -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=2, jit=triple == llvm.get_default_triple()
    )


def host() -> llvm.TargetMachine:
    return machine(llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


def element_type(dtype: type[Any]) -> ir.Type:
    floats = {np.float32: ir.FloatType(), np.float64: ir.DoubleType()}
    return floats.get(dtype) or ir.IntType(np.dtype(dtype).itemsize * 8)


def add_kernel(module: ir.Module, name: str, element: ir.Type, width: int | None, arity: int, emit: Emit) -> None:
    """void name(inputs..., output, count): output[i] = emit(inputs[i]...), `width` elements at a time."""
    type = element if width is None else ir.VectorType(element, width)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER] * (arity + 1) + [I64]), name)
    *inputs, output, count = function.args
    entry, body, done = (function.append_basic_block() for _ in range(3))
    ir.IRBuilder(entry).branch(body)
    builder = ir.IRBuilder(body)
    index = builder.phi(I64)
    index.add_incoming(I64(0), entry)

    def address(base: ir.Value) -> ir.Value:
        return builder.gep(base, [index], source_etype=element)

    values = [builder.load(address(base), typ=type, align=1) for base in inputs]
    builder.store(emit(builder, values), address(output), align=1)
    following = builder.add(index, I64(width or 1))
    index.add_incoming(following, builder.basic_block)
    builder.cbranch(builder.icmp_unsigned("<", following, count), body, done)
    ir.IRBuilder(done).ret_void()


def optimised(module: ir.Module, target: llvm.TargetMachine) -> llvm.ModuleRef:
    module.triple, module.data_layout = target.triple, str(target.target_data)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    passes = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=1))
    passes.getModulePassManager().run(parsed, passes)
    return parsed


class Kernel:
    """A compiled loop, called with arrays."""

    def __init__(self, dtype: type[Any], width: int | None, arity: int, emit: Emit) -> None:
        module = ir.Module()
        add_kernel(module, "kernel", element_type(dtype), width, arity, emit)
        target = host()  # the engine will own it
        self.engine = llvm.create_mcjit_compiler(optimised(module, target), target)
        self.dtype, self.width = dtype, width or 1
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (arity + 1), ctypes.c_int64)
        self.call = signature(self.engine.get_function_address("kernel"))

    def __call__(self, *arrays: Array) -> Array:
        count = arrays[0].size
        padded = [np.concatenate([np.asarray(a, self.dtype), np.ones(-count % self.width, self.dtype)]) for a in arrays]
        output = np.empty_like(padded[0])
        self.call(*(array.ctypes.data for array in [*padded, output]), output.size)
        return output[:count]


@cache
def kernel(name: str, dtype: type[Any], width: int | None = 8, instructions: Instructions = PLAIN) -> Kernel:
    def emit(builder: ir.IRBuilder, values: list[ir.Value]) -> ir.Value:
        return builder.call(math_function(builder.module, name, values[0].type, instructions), values)

    return Kernel(dtype, width, 1 if name in UNARY_FUNCTIONS else 2, emit)


# --- references and errors -------------------------------------------------------------------------------------------


def sigmoid_reference(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def erf_reference(x: Array) -> Array:
    """In float64 C's; beyond, 2 / sqrt(pi) e^-x^2 (x + 2/3 x^3 + 4/15 x^5 + ...), whose terms do not cancel."""
    if x.dtype == np.float64:
        return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), np.float64)
    inside = np.clip(x, -7, 7)
    pi = np.longdouble("3.14159265358979323846264338327950288")
    term = 2 / np.sqrt(pi) * np.exp(-inside * inside) * inside
    total = term
    for n in range(1, 200):
        term = term * inside * inside / (n + np.longdouble(0.5))
        total = total + term
    return np.where(np.abs(x) < np.longdouble(1e-300), x * (2 / np.sqrt(pi)), total)


REFERENCE: dict[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in "exp expm1 log log1p tanh sinh cosh sin cos tan".split()},
    **{name: getattr(np, name.replace("a", "arc", 1)) for name in "asin acos atan asinh acosh atanh".split()},
    **{"sigmoid": sigmoid_reference, "erf": erf_reference, "pow": np.power},
}


def reference(name: str, dtype: type[Any], *arrays: Array) -> Array:
    with np.errstate(all="ignore"):
        return REFERENCE[name](*(np.asarray(array, WIDER[dtype]) for array in arrays))


def errors(result: Array, exact: Array) -> Array:
    """|result - exact| in units in the last place of `exact` as rounded; infinite where only one is NaN or infinite."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(result.dtype)
        distance = np.abs(result - exact) / np.spacing(np.abs(rounded))
    special = ~np.isfinite(rounded)
    same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
    wrong_sign = (rounded == 0) & (result == 0) & (np.signbit(rounded) != np.signbit(result))
    return np.where(special, np.where(same, 0, np.inf), np.where(np.isfinite(result) & ~wrong_sign, distance, np.inf))


def check(result: Array, exact: Array, limit: float, *arguments: Array) -> None:
    error = errors(result, exact)
    worst = int(np.argmax(error))
    at = ", ".join(float(argument[worst]).hex() for argument in arguments)
    assert error[worst] <= limit, f"{error[worst]:.2f} units at ({at}): {result[worst]!r}, should be {exact[worst]!r}"


# --- arguments -------------------------------------------------------------------------------------------------------

SPECIAL = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0])
THRESHOLDS = np.array(
    [
        *(0.25, 0.5, 0.55, math.sqrt(0.5), 1.0, math.sqrt(2), 2.0, math.pi / 4, math.pi / 2, math.pi, 2.0**16, 2.0**40),
        *(math.log(2) / 2, math.log(2), 2 * math.log(2), 3.9375, 5.9296875, 9.01, 9.25, 17.33, 18.0, 19.06, 37.4),
        *(87.336544, 88.722839, 89.415986, 103.27893, 103.972084, 104.0),
        *(708.3964, 709.782712893384, 710.475860073944, 745.1332191019411, 746.0, 2.0**24, 2.0**53, 2.0**-24, 2.0**-53),
    ]
)


def neighbours(values: Array, dtype: type[Any], radius: int = 64) -> Array:
    """Each value with the numbers next to it, of both signs."""
    integer = np.int32 if dtype is np.float32 else np.int64
    bits = values.astype(dtype).view(integer)[:, None] + np.arange(-radius, radius + 1, dtype=integer)
    positive = bits.ravel().view(dtype)
    return np.concatenate([positive, -positive])


def edges(dtype: type[Any]) -> tuple[Array, Array]:
    """Single values, and values whose neighbours matter too."""
    limits = np.finfo(dtype)
    tiny = np.geomspace(limits.smallest_subnormal, limits.tiny, 500, dtype=WIDER[dtype])
    ends = np.array([limits.smallest_subnormal * 80, limits.tiny, limits.max / 2])
    return np.concatenate([np.array([limits.max, limits.min]), SPECIAL, tiny, -tiny]).astype(dtype), ends.astype(dtype)


@cache
def sample(dtype: type[Any]) -> Array:
    """Encodings at an even distance through float32; a mixture of distributions for float64; all that is special."""
    special, ends = edges(dtype)
    known = np.concatenate([special, neighbours(ends, dtype), neighbours(THRESHOLDS, dtype)])
    if dtype is np.float32:
        return np.concatenate([known, np.arange(0, 2**32, 2039, dtype=np.int64).astype(np.uint32).view(dtype)])
    random, n = np.random.default_rng(20), 10_000
    sign = random.choice([-1.0, 1.0], n)
    return np.concatenate(
        [
            known,
            random.integers(0, 2**64, n, dtype=np.uint64).view(dtype),
            *(random.uniform(-scale, scale, n) for scale in (1, 4, 40, 750)),
            np.exp(random.uniform(-60, 8, n)) * sign,
            1 + np.exp(random.uniform(-36, 0, n)) * sign,
            random.integers(1, 2**41, n) * (math.pi / 2),
            np.array([6381956970095103 * 2.0**797]),  # of all doubles the nearest to a multiple of pi/2
        ]
    )


# --- tests -----------------------------------------------------------------------------------------------------------


@with_instructions
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=needs_long_double)])
@pytest.mark.parametrize("name", UNARY)
def test_error_is_bounded(name: str, dtype: type[Any], instructions: Instructions) -> None:
    x = sample(dtype)[::3] if instructions == UNFUSED else sample(dtype)
    limit = AIM.get(name, LIMIT) if dtype is np.float32 else LIMIT
    check(kernel(name, dtype, instructions=instructions)(x), reference(name, dtype, x), limit, x)


@pytest.mark.slow
@with_instructions
@pytest.mark.parametrize("name", UNARY)
def test_error_is_bounded_everywhere(name: str, instructions: Instructions) -> None:
    run, block = kernel(name, np.float32, 16, instructions), np.arange(2**18, dtype=np.uint32)
    for start in range(0, 2**32, block.size):
        x = (block + np.uint32(start)).view(np.float32)
        check(run(x), reference(name, np.float32, x), AIM.get(name, LIMIT), x)


@with_instructions
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=needs_long_double)])
def test_normal_cdf_is_as_exact_as_a_sum(dtype: type[Any], instructions: Instructions) -> None:
    """Its error is counted in units of 1; and it ends in 0 and 1, because GELU multiplies it by numbers of any size."""
    x = sample(dtype)[~np.isnan(sample(dtype))]
    result, wide = kernel("normal_cdf", dtype, instructions=instructions)(x), np.asarray(x, WIDER[dtype])
    exact = (1 + erf_reference(wide * np.sqrt(WIDER[dtype](0.5)))) / 2
    assert np.max(np.abs(result - exact)) <= np.finfo(dtype).eps
    np.testing.assert_array_equal(result[x < -10], 0)
    np.testing.assert_array_equal(result[x > 10], 1)
    assert np.all((result >= 0) & (result <= 1))
    assert np.isnan(kernel("normal_cdf", dtype, instructions=instructions)(np.array([math.nan], dtype))).all()


@with_instructions
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(MATH_FUNCTIONS))
def test_lanes_do_not_matter(name: str, dtype: type[Any], instructions: Instructions) -> None:
    x = sample(dtype)[:: 97 if dtype is np.float32 else 5]
    arguments = (x,) if name in UNARY_FUNCTIONS else (x, np.roll(x, 1))
    scalar, *vectors = (kernel(name, dtype, width, instructions)(*arguments) for width in (None, 1, 4, 8, 16, 64))
    for vector in vectors:
        np.testing.assert_array_equal(vector, scalar)
        np.testing.assert_array_equal(np.signbit(vector[~np.isnan(x)]), np.signbit(scalar[~np.isnan(x)]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted({*ODD, "cos", "cosh"} - {"expm1", "log1p"}))
def test_symmetry(name: str, dtype: type[Any]) -> None:
    """f(-x) = -f(x), or f(x) for even functions, to the bit."""
    x = sample(dtype)[::11]
    right, left = kernel(name, dtype)(x), kernel(name, dtype)(-x)
    np.testing.assert_array_equal(left, right if name.startswith("cos") else -right)


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("exp", 0.0, 1.0),
        ("exp", -math.inf, 0.0),
        ("cos", 0.0, 1.0),
        ("cosh", 0.0, 1.0),
        ("sigmoid", 0.0, 0.5),
        ("log", 1.0, 0.0),
        ("log", 0.0, -math.inf),
        ("log1p", -1.0, -math.inf),
        ("acos", 1.0, 0.0),
        ("acosh", 1.0, 0.0),
        ("atanh", 1.0, math.inf),
        ("erf", math.inf, 1.0),
        ("tanh", -math.inf, -1.0),
        *((name, -0.0, -0.0) for name in ODD),
    ],
)
@with_instructions
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exact_values(name: str, x: float, expected: float, dtype: type[Any], instructions: Instructions) -> None:
    (result,) = kernel(name, dtype, instructions=instructions)(np.array([x]))
    assert float(result) == expected and math.copysign(1, result) == math.copysign(1, expected)


# --- two arguments ---


def pairs(dtype: type[Any]) -> tuple[Array, Array]:
    """Pairs whose power is in range, made from the logarithm it should have; integer exponents; any pairs."""
    random, n = np.random.default_rng(21), 100_000 if dtype is np.float32 else 10_000
    largest = math.log(float(np.finfo(dtype).max)) * 1.01
    smallest = math.log(float(np.finfo(dtype).smallest_subnormal)) * 1.01
    with np.errstate(over="ignore"):
        base = np.concatenate(
            [
                np.exp(random.uniform(smallest, largest, n)),
                1 + np.exp(random.uniform(-18, 0, n)) * random.choice([-0.99, 1], n),
                random.uniform(0.5, 2, n),
            ]
        ).astype(dtype)
    with np.errstate(all="ignore"):
        exponent = random.uniform(smallest, largest, 3 * n) / np.log(base.astype(WIDER[dtype]))
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    anything = random.integers(0, np.iinfo(unsigned).max, (2, n), dtype=unsigned).view(dtype)
    return (
        np.concatenate([base, random.normal(0, 20, n).astype(dtype), anything[0]]),
        np.concatenate([exponent.astype(dtype), random.integers(-30, 30, n).astype(dtype), anything[1]]),
    )


@with_instructions
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=needs_long_double)])
def test_pow_error_is_bounded(dtype: type[Any], instructions: Instructions) -> None:
    x, y = pairs(dtype)
    check(kernel("pow", dtype, instructions=instructions)(x, y), reference("pow", dtype, x, y), LIMIT, x, y)


def with_signs(*numbers: float) -> list[float]:
    return [*numbers, *(-number for number in numbers), math.nan]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pow_of_special_values(dtype: type[Any]) -> None:
    """The cases of IEEE 754, 9.2.1, as C's pow has them."""
    bases = with_signs(0.0, 1.0, 0.5, 2.0, 3.0, 1e-40, 1e30, math.inf)
    odd, even = (1.0, 3.0, 101.0, 2.0**24 - 1), (0.0, 2.0, 2.0**24, 2.0**60, 1e30)
    exponents = with_signs(*odd, *even, 0.5, 3.5, 1e-40, math.inf)
    x, y = (np.array(column).astype(dtype) for column in zip(*product(bases, exponents), strict=True))
    check(kernel("pow", dtype)(x, y), reference("pow", dtype, x, y), LIMIT, x, y)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (math.nan, 0.0, 1.0),
        (1.0, math.nan, 1.0),
        (-1.0, math.nan, math.nan),
        (-1.0, math.inf, 1.0),
        (-1.0, -math.inf, 1.0),
        (-8.0, 3.0, -512.0),
        (-8.0, 1 / 3, math.nan),
        (-0.0, -3.0, -math.inf),
        (-0.0, -2.0, math.inf),
        (-0.0, 3.0, -0.0),
        (-math.inf, -3.0, -0.0),
        (-math.inf, 0.5, math.inf),
        (0.5, -math.inf, math.inf),
        (0.0, math.nan, math.nan),
        (math.inf, math.nan, math.nan),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pow_table(x: float, y: float, expected: float, dtype: type[Any]) -> None:
    (result,) = kernel("pow", dtype)(np.array([x]), np.array([y]))
    np.testing.assert_equal(float(result), expected)
    assert math.isnan(expected) or math.copysign(1, result) == math.copysign(1, expected)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 0.5, -0.5])
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=needs_long_double)])
def test_constant_power(dtype: type[Any], exponent: float) -> None:
    def emit(builder: ir.IRBuilder, values: list[ir.Value]) -> ir.Value:
        power = try_constant_power(builder, values[0], exponent)
        assert power is not None
        return power

    x = sample(dtype)[::7]
    check(Kernel(dtype, 8, 1, emit)(x), reference("pow", dtype, x, np.full_like(x, exponent)), LIMIT, x)


def test_constant_power_declines() -> None:
    builder = ir.IRBuilder(ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), []), "f").append_basic_block())
    assert try_constant_power(builder, ir.FloatType()(2.0), 2.5) is None


@with_instructions
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fmod_is_exact(dtype: type[Any], instructions: Instructions) -> None:
    random, n = np.random.default_rng(22), 20_000
    special, _ = (values[::9] for values in edges(dtype))
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    anything = random.integers(0, np.iinfo(unsigned).max, (2, n), dtype=unsigned).view(dtype)
    usual = (random.normal(0, scale, n).astype(dtype) for scale in (100, 3))
    crossed = (special.repeat(special.size), np.tile(special, special.size))
    x, y = (np.concatenate(columns) for columns in zip(anything, usual, crossed, strict=True))
    result = kernel("fmod", dtype, instructions=instructions)(x, y)
    with np.errstate(all="ignore"):
        expected = np.fmod(x, y)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.signbit(result[result == 0]), np.signbit(expected[result == 0]))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint64])
def test_integer_power(dtype: type[Any]) -> None:
    limits, bits = np.iinfo(dtype), np.dtype(dtype).itemsize * 8
    numbers = sorted({limits.min, limits.max, limits.max - 1, *range(max(limits.min, -9), 70)})
    x, n = (np.array(column, dtype) for column in zip(*product(numbers, repeat=2), strict=True))
    name = "ipow" if limits.min < 0 else "upow"

    def expected(base: int, exponent: int) -> int:
        if exponent < 0:
            return {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)
        power = pow(base, exponent, 1 << bits)
        return power if power <= limits.max else power - (1 << bits)

    wanted = np.array([expected(int(base), int(exponent)) for base, exponent in zip(x, n, strict=True)], dtype)
    np.testing.assert_array_equal(kernel(name, dtype, 4)(x, n), wanted)


# --- the code itself ---


def test_a_function_is_defined_once() -> None:
    module = ir.Module()
    type = ir.VectorType(ir.FloatType(), 8)
    function = math_function(module, "exp", type)
    assert math_function(module, "exp", type) is function
    others = {math_function(module, "exp", type, instructions).name for instructions in (UNFUSED, AVX512)}
    assert len(others - {function.name}) == 2
    assert function.name == "foretell.exp.v8f32"


EXP = """
define internal float @"foretell.exp.f32"(float %".1") alwaysinline nounwind
{
.3:
  %".4" = fcmp olt float 0x4056400000000000, %".1"
  %".5" = select  i1 %".4", float 0x4056400000000000, float %".1"
  %".6" = fcmp ogt float 0xc05a000000000000, %".5"
  %".7" = select  i1 %".6", float 0xc05a000000000000, float %".5"
  %".8" = call float @"llvm.fma.f32"(float %".7", float 0x3fe7154760000000, float 0x4168000fe0000000)
  %".9" = fsub float %".8", 0x4168000fe0000000
  %".10" = bitcast float %".8" to i32
  %".11" = shl i32 %".10", 23
  %".12" = bitcast i32 %".11" to float
  %".13" = call float @"llvm.fma.f32"(float %".9", float 0xbff62e4000000000, float %".7")
  %".14" = call float @"llvm.fma.f32"(float %".9", float 0xbec7f7d1c0000000, float %".13")
  %".15" = call float @"llvm.fma.f32"(float 0x3f29bf6980000000, float %".14", float 0x3f571c8cc0000000)
  %".16" = call float @"llvm.fma.f32"(float %".15", float %".14", float 0x3f81126aa0000000)
  %".17" = call float @"llvm.fma.f32"(float %".16", float %".14", float 0x3fa5549ce0000000)
  %".18" = call float @"llvm.fma.f32"(float %".17", float %".14", float 0x3fc5555120000000)
  %".19" = call float @"llvm.fma.f32"(float %".18", float %".14", float 0x3fe00000c0000000)
  %".20" = call float @"llvm.fma.f32"(float %".19", float %".14", float 0x3ff0000000000000)
  %".21" = call float @"llvm.fma.f32"(float %".20", float %".14", float 0x3ff0000000000000)
  %".22" = fmul float %".21", %".12"
  %".23" = fmul float %".22", %".12"
  ret float %".23"
}
"""


def test_exp_as_text() -> None:
    module = ir.Module()
    assert str(math_function(module, "exp", ir.FloatType())).strip() == EXP.strip()


@pytest.mark.parametrize(("instructions", "count"), [(PLAIN, 16), (AVX512, 11)], ids=["plain", "avx512"])
def test_exp_is_few_instructions(instructions: Instructions, count: int) -> None:
    module = ir.Module()

    def emit(builder: ir.IRBuilder, values: list[ir.Value]) -> ir.Value:
        return builder.call(math_function(module, "exp", values[0].type, instructions), values)

    add_kernel(module, "kernel", ir.FloatType(), 16, 1, emit)
    target = machine("x86_64-unknown-linux-gnu", "x86-64-v4")
    assembly = target.emit_assembly(optimised(module, target))
    computes = r"^\sv(?:min|max|add|sub|mul|div|fm|fnm|psll|and|or|xor|cmp|blend|perm|range|scalef)"
    assert len(re.findall(computes, assembly, re.MULTILINE)) == count


LIBRARY = re.compile(
    r"\b_?((?:a?(?:sin|cos|tan)h?|exp|exp2|expm1|log|log1p|log2|erfc?|pow|fmod|fma|sqrt|floor|ceil|trunc|rint|round|roundeven"
    r"|ldexp)f?|mem(?:cpy|move|set)|__(?:a|l)sh\w+|__(?:mul|u?div|u?mod|fix|float)\w+)\b"
)


def library_symbols(triple: str, cpu: str, features: str, instructions: Instructions) -> set[str]:
    """Functions of libm, of libc and of compiler run times that the machine code of all our functions mentions."""
    module = ir.Module()
    kinds = product(sorted(MATH_FUNCTIONS), [(ir.FloatType(), 8), (ir.DoubleType(), 4)])
    for index, (name, (element, width)) in enumerate(kinds):

        def emit(builder: ir.IRBuilder, values: list[ir.Value], name: str = name) -> ir.Value:
            return builder.call(math_function(module, name, values[0].type, instructions), values)

        add_kernel(module, f"kernel_{index}", element, width, 1 if name in UNARY_FUNCTIONS else 2, emit)
    target = machine(triple, cpu, features)
    lines = re.findall(r"^\s+[^.#/;\s].*", target.emit_assembly(optimised(module, target)), re.MULTILINE)
    operands = (line.split(None, 1)[1] for line in lines if len(line.split(None, 1)) == 2)
    return {symbol for line in operands for symbol in LIBRARY.findall(line)}


@pytest.mark.parametrize(
    ("triple", "cpu", "features", "instructions"),
    [
        ("x86_64-unknown-linux-gnu", "x86-64-v2", "", UNFUSED),
        ("x86_64-pc-windows-msvc", "x86-64-v4", "", PLAIN),
        ("x86_64-unknown-linux-gnu", "skylake-avx512", "", AVX512),
        ("aarch64-unknown-linux-gnu", "neoverse-n1", "", PLAIN),
        ("arm64-apple-macosx", "apple-m1", "", PLAIN),
        ("riscv64-unknown-linux-gnu", "generic-rv64", "+m,+f,+d", PLAIN),
        ("wasm32-unknown-unknown", "generic", "+simd128", UNFUSED),
    ],
)
def test_no_library_is_called(triple: str, cpu: str, features: str, instructions: Instructions) -> None:
    assert library_symbols(triple, cpu, features, instructions) == set()


@pytest.mark.parametrize(
    ("target", "instructions"),
    [("x86-64-v2", UNFUSED), ("x86-64-v3", PLAIN), ("x86-64-v4", AVX512), ("neoverse-n1", PLAIN), ("riscv64", PLAIN)],
)
def test_targets_have_instructions(target: str, instructions: Instructions) -> None:
    assert Registers.of(resolve_target(target).spec).instructions == instructions


def test_fused_steps_need_hardware() -> None:
    assert library_symbols("x86_64-unknown-linux-gnu", "x86-64-v2", "", PLAIN) == {"fma", "fmaf"}


def test_the_functions_that_there_are() -> None:
    assert sorted(BINARY_FUNCTIONS) == ["fmod", "pow"]
    assert sorted(INTEGER_FUNCTIONS) == ["ipow", "upow"]
    assert MATH_FUNCTIONS - BINARY_FUNCTIONS == UNARY_FUNCTIONS == set(REFERENCE) - {"pow"} | {"normal_cdf"}
