"""What a convolution should cost, directly or in tiles by Winograd's minimal filtering; and how exact it is."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt

from foretell.graph.cook_toom import MAX_POINTS, amplification
from foretell.graph.ops.winograd import transform_additions
from foretell.graph.rewrites.use_winograd import Convolution
from foretell.search.near_memory import Amounts, cycles_from
from foretell.search.product_cost import GROWTH, ROUNDING, WAITING_SHARE, fastest_tile
from foretell.target.hardware_spec import HardwareSpec

TILES = (2, 3, 4, 5, 6)
"""Results of a tile along each axis that are worth a thought."""
MOST_PLACES = 64
"""Places of a tile: more do not fit the registers by far."""
FLOAT_BYTES = 4
SPILL_CYCLES = 0.25
"""What each place of a tile that does not fit the registers costs for each of them: 8 with 32 of them, as measured on
Ice Lake, and less with fewer, as whole layers suggest on Zen 4."""
PHASE_CYCLES = 16.0
"""What a vector of data costs that is put together from every second element, say; estimated."""
CLEAR_GAIN = 0.9
"""Tiles must be predicted to take less than this fraction of the direct way, which is exact to the last digits."""


@dataclass(frozen=True, slots=True)
class ConvolutionTime:
    """Seconds on all cores, by what takes them."""

    products_s: float
    """Multiplying and adding."""
    weights_s: float
    """Waiting for weights and for tiles; overlaps with the products."""
    transforms_s: float
    starts_s: float
    """Starting more than one parallel loop."""

    @property
    def total_s(self) -> float:
        longer, shorter = max(self.products_s, self.weights_s), min(self.products_s, self.weights_s)
        return longer + WAITING_SHARE * shorter + self.transforms_s + self.starts_s


def choose_tile(convolution: Convolution, spec: HardwareSpec, weights_bytes: int, error: float) -> int:
    """Results of a tile along each axis that should be fastest among those exact enough; 0 for the direct way."""
    limit_s = CLEAR_GAIN * direct_time(convolution, spec, weights_bytes).total_s
    best, best_s = 0, limit_s
    for results in TILES:
        if is_allowed(convolution, results, error) and products_s(convolution, results, spec) < best_s:
            time_s = winograd_time(convolution, results, spec, weights_bytes).total_s
            best, best_s = (results, time_s) if time_s < best_s else (best, best_s)
    return best


def is_allowed(convolution: Convolution, results: int, error: float) -> bool:
    """Whether tiles of a size exist, can be written out, and are predicted to be exact enough."""
    convolution = convolution.in_phases
    places = convolution.places(convolution.tile(results))
    if max(convolution.kernel) == 1 or max(places) > MAX_POINTS or prod(places) > MOST_PLACES:
        return False
    return winograd_error(convolution.kernel, convolution.channels, results) <= error


def winograd_error(kernel: tuple[int, ...], channels: int, results: int) -> float:
    """The greatest error to expect of random data, relative to the greatest result."""
    amplified = prod(amplification(results, taps) for taps in kernel if taps > 1)
    return ROUNDING * amplified * (1 + GROWTH * sqrt(channels))


def direct_time(convolution: Convolution, spec: HardwareSpec, weights_bytes: int) -> ConvolutionTime:
    """Of the sum as it is defined: rows of the image in tiles of registers."""
    rows, others = convolution.shape[-1], convolution.batch * prod(convolution.shape[:-1])
    steps = convolution.channels * prod(convolution.kernel) * others
    own_bytes = _direct_bytes(convolution)
    weights = cycles_from(spec, own_bytes, max(weights_bytes, own_bytes))
    return ConvolutionTime(
        _seconds(spec, steps * fastest_tile(spec, rows, convolution.outputs).step_cycles),
        _seconds(spec, weights),
        0.0,
        0.0,
    )


def winograd_time(convolution: Convolution, results: int, spec: HardwareSpec, weights_bytes: int) -> ConvolutionTime:
    """Of tiles: one matrix product for each place, and transformations before and after.

    With strides, the data is copied in phases first. The weights grow from the taps to the places of a tile, and all
    weights of a model are read between two uses; the transformed data and results pass through the nearest cache that
    holds what one core has of them.
    """
    multiplying_s = products_s(convolution, results, spec)
    strides, others_bytes = convolution.strides, max(0, weights_bytes - _direct_bytes(convolution))
    convolution = convolution.in_phases
    tile, channels, outputs = convolution.tile(results), convolution.channels, convolution.outputs
    places, tiles = prod(convolution.places(tile)), convolution.batch * prod(convolution.tiles(tile))
    own_bytes = FLOAT_BYTES * places * channels * outputs
    data_bytes, result_bytes = (FLOAT_BYTES * places * tiles * count for count in (channels, outputs))
    between = (data_bytes + result_bytes) / spec.cores
    weights = cycles_from(spec, own_bytes, others_bytes + own_bytes) + cycles_from(spec, data_bytes, between)
    before, after = transform_additions(tile, convolution.kernel)
    transforms = tiles * _vectors(spec, channels) * _transform_cycles(spec, before, places, places)
    transforms += tiles * _vectors(spec, outputs) * _transform_cycles(spec, after, places, prod(tile))
    transforms += cycles_from(spec, data_bytes, between) + cycles_from(spec, result_bytes, between)
    starts = 2
    if max(strides) > 1:
        elements = convolution.batch * channels * prod(convolution.data_shape)
        transforms += PHASE_CYCLES * elements / spec.vector_lanes(8 * FLOAT_BYTES)
        starts += 1
    return ConvolutionTime(
        multiplying_s, _seconds(spec, weights), _seconds(spec, transforms), starts * spec.barrier_cost_s
    )


def products_s(convolution: Convolution, results: int, spec: HardwareSpec) -> float:
    """Seconds that multiplying takes in tiles, whatever else they take."""
    convolution = convolution.in_phases
    tile = convolution.tile(results)
    places, tiles = prod(convolution.places(tile)), convolution.batch * prod(convolution.tiles(tile))
    return _seconds(spec, places * convolution.channels * fastest_tile(spec, tiles, convolution.outputs).step_cycles)


def _direct_bytes(convolution: Convolution) -> int:
    """Of its weights as they are."""
    return FLOAT_BYTES * convolution.channels * convolution.outputs * prod(convolution.kernel)


def _transform_cycles(spec: HardwareSpec, additions: int, loads: int, stores: int) -> float:
    """Cycles to transform one vector of tiles whose data is near; what is wider than a unit is stored in parts."""
    spilled, parts = max(0, loads - spec.vector_registers), max(1, spec.vector_bytes) / max(1, spec.unit_bytes)
    storing = parts * (stores / spec.store_ports + SPILL_CYCLES * spilled**2)
    return additions / spec.fma_ports + loads / spec.load_ports + storing


def _vectors(spec: HardwareSpec, channels: int) -> int:
    return -(-channels // spec.vector_lanes(8 * FLOAT_BYTES))


def _seconds(spec: HardwareSpec, cycles: float | Amounts) -> float:
    return float(cycles) * spec.cycle_s / spec.cores
