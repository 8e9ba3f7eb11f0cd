"""The op table: every canonical operator, with its types and its definition."""

from __future__ import annotations

from foretell.graph.ops.contraction import CONTRACTION
from foretell.graph.ops.control import CONTROL
from foretell.graph.ops.elementwise import ELEMENTWISE
from foretell.graph.ops.movement import MOVEMENT
from foretell.graph.ops.normalisation import NORMALISATION
from foretell.graph.ops.op import OpDef
from foretell.graph.ops.paired import PAIRED
from foretell.graph.ops.placement import PLACEMENT
from foretell.graph.ops.quantise import QUANTISE
from foretell.graph.ops.reduction import REDUCTION
from foretell.graph.ops.resample import RESAMPLE
from foretell.graph.ops.sample import SAMPLE
from foretell.graph.ops.strassen import STRASSEN
from foretell.graph.ops.window import WINDOW
from foretell.graph.ops.winograd import WINOGRAD

OPS: dict[str, OpDef] = {
    **ELEMENTWISE,
    **MOVEMENT,
    **REDUCTION,
    **CONTRACTION,
    **PAIRED,
    **STRASSEN,
    **NORMALISATION,
    **QUANTISE,
    **WINDOW,
    **WINOGRAD,
    **SAMPLE,
    **RESAMPLE,
    **PLACEMENT,
    **CONTROL,
}
