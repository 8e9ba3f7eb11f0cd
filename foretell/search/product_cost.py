"""What a product of matrices should take, as it is defined, with products in pairs, or by quarters; and how exact."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from foretell.graph.ops.strassen import AMPLIFICATION, PRODUCTS
from foretell.graph.rewrites.pair_products import Product
from foretell.graph.rewrites.use_strassen import Halves
from foretell.search.contraction import TileLoads
from foretell.search.near_memory import cycles_from, second_cache_bytes
from foretell.search.tiles import PLAIN, covered, overlapped, tile_cycles, tile_shapes
from foretell.target.hardware_spec import HardwareSpec

PAIRED = TileLoads(3, 3, 0, products=2, additions=2)
"""Of a step that makes up for three."""
STEP_CYCLES = 0.5
"""What a step of a tile loses to its loop."""
ROW_CYCLES = 25.0
"""Preparing a row: the sums over it, and a division; measured on Zen 4, as is the next."""
VECTOR_CYCLES = 8.0
"""Adding up a vector of a row, dividing it, and adding up its pairs."""
WAITING_SHARE = 0.5
"""The part of waiting for weights, or of multiplying, that the longer of the two does not hide; on Ice Lake."""
PARTED = 3.0
"""What waiting for weights takes over that if they come in three parts; estimated from three layers on Zen 4."""
CLEAR_GAIN = 0.85
"""Pairs must be predicted to take less than this fraction of the time."""
CLEAR_SAVINGS = (0.96, 0.95)
"""The same of quarters, whose products are like any others and well known: of halving once over not at all, and of
halving twice over once. The weights grow each time, and compiling takes longer."""
OPERAND_TRIPS, RESULT_TRIPS = 4.0, 1.5
"""What sums of quarters of x, and products of quarters, take for each time that they would pass between a core and the
cache that holds them: tiles wait for the former, a line of each row at a time. Picked by products on Zen 3."""
FLOAT_BITS = 32
ROUNDING = 2.0**-24
"""The greatest relative error of rounding to float32."""
PAIRS = 4.0
"""What rounding errors of pairs are over those of single products: (x + w) * (x + w) over x * w."""
GROWTH = 0.4
"""What each root of a step adds to the error: sums are rounded at each step."""


def suits_pairs(product: Product, spec: HardwareSpec, weights_bytes: int, error: float) -> bool:
    """Whether pairs should be faster, and are exact enough; all weights of a model are read between two uses."""
    if not spec.add_ports or product.length < 3 or paired_error(product.length, product.amplified) > error:
        return False
    own_bytes = product.batch * product.length * product.width * FLOAT_BITS // 8
    waiting = float(cycles_from(spec, own_bytes, max(weights_bytes, own_bytes)))
    plain = overlapped(plain_cycles(product, spec), waiting, WAITING_SHARE)
    return bool(overlapped(paired_cycles(product, spec), PARTED * waiting, WAITING_SHARE) < CLEAR_GAIN * plain)


def paired_error(length: int, amplified: float = 1.0) -> float:
    """The greatest error to expect of random data, relative to the greatest result."""
    return ROUNDING * amplified * (1 + PAIRS * GROWTH * sqrt(length))


def choose_levels(halves: Halves, spec: HardwareSpec, weights_bytes: int, error: float) -> int:
    """How often matrices should be halved to be multiplied by quarters, if that is exact enough; 0 for not at all."""
    if suits_pairs(halves_product(halves, 0), spec, weights_bytes, error):
        return 0
    best, best_cycles = 0, halved_cycles(halves, 0, spec, weights_bytes)
    for levels, saving in enumerate(CLEAR_SAVINGS, start=1):
        if not halves.fits(levels) or halved_error(halves.length, levels) > error:
            break
        cycles = halved_cycles(halves, levels, spec, weights_bytes)
        if cycles >= saving * best_cycles:
            break
        best, best_cycles = levels, cycles
    return best


def halves_product(halves: Halves, levels: int) -> Product:
    """The products of quarters."""
    parts = 2**levels
    rows = halves.others * -(-halves.rows // parts)
    return Product(PRODUCTS**levels, rows, halves.length // parts, halves.width // parts)


def halved_cycles(halves: Halves, levels: int, spec: HardwareSpec, weights_bytes: int) -> float:
    """Of one core, if all weights of a model are read between two uses.

    Sums of quarters are written and read again, and weights grow, like the number of products over that of quarters.
    Cores share rows in sums, and quarters in products, so that they read what others have written.
    """
    product, grown = halves_product(halves, levels), (PRODUCTS / 4) ** levels
    own_bytes = product.batch * product.length * product.width * FLOAT_BITS // 8
    weights = float(cycles_from(spec, own_bytes, max(weights_bytes, own_bytes)))
    multiplying = float(overlapped(plain_cycles(product, spec), weights, WAITING_SHARE))
    if levels == 0:
        return multiplying
    before, after = (
        halves.others * halves.rows * count * grown * FLOAT_BITS / 8 for count in (halves.length, halves.width)
    )
    moved = OPERAND_TRIPS * before / halves.readers + RESULT_TRIPS * after
    own_part = 1 / spec.cores
    own = float(cycles_from(spec, moved, (before + after) * own_part))
    others = float(cycles_from(spec, moved, max(before + after, second_cache_bytes(spec))))
    sums = own_part * own + (1 - own_part) * others
    return multiplying + sums + 2 * spec.barrier_cost_s * spec.cores * spec.frequency_hz


def halved_error(length: int, levels: int) -> float:
    """The greatest error to expect of random data, relative to the greatest result."""
    return ROUNDING * AMPLIFICATION**levels * (1 + GROWTH * sqrt(length / 2**levels))


def plain_cycles(product: Product, spec: HardwareSpec) -> float:
    """Of one core, if operands are near."""
    return product.batch * product.length * fastest_tile(spec, product.rows, product.width).step_cycles


def paired_cycles(product: Product, spec: HardwareSpec) -> float:
    """The same with products in pairs, preparing rows included."""
    lanes = spec.vector_lanes(FLOAT_BITS)
    each = product.length / 3 * fastest_tile(spec, product.rows, product.width, loads=PAIRED).step_cycles
    preparing = product.rows * (ROW_CYCLES + VECTOR_CYCLES * -(-product.length // lanes))
    return product.batch * (each + preparing)


@dataclass(frozen=True, slots=True)
class FastestTile:
    """The tiles that suit rows and columns of an output best."""

    rows: int
    width: int
    count: int
    """Tiles that cover it."""
    step_cycles: float
    """Of one step of the sum, all of them together."""


def fastest_tile(
    spec: HardwareSpec, rows: int, width: int, bits: int = FLOAT_BITS, loads: TileLoads = PLAIN
) -> FastestTile:
    """The shorter of multiplying and loading counts as hidden: the other numbers here were measured against that."""
    lanes = spec.vector_lanes(bits)
    tall, wide = tile_shapes(spec, rows, width, lanes, loads)
    cycles, _ = covered(tall, wide, rows, width, lambda rows, width: tile_cycles(spec, rows, width, lanes, loads))
    counts = -(-rows // tall) * -(-width // wide)
    cycles = cycles + STEP_CYCLES * counts
    best = int(cycles.argmin())
    return FastestTile(int(tall[best]), int(wide[best]), int(counts[best]), float(cycles[best]))
