"""Stage 1: how each ONNX operator becomes canonical ones: a table of importers by (domain, operator)."""

from __future__ import annotations

from foretell.frontend.operators.attention import ATTENTION_IMPORTERS
from foretell.frontend.operators.contraction import CONTRACTION_IMPORTERS
from foretell.frontend.operators.control import CONTROL_IMPORTERS
from foretell.frontend.operators.elementwise import ELEMENTWISE_IMPORTERS
from foretell.frontend.operators.fourier import FOURIER_IMPORTERS
from foretell.frontend.operators.importer import Importer
from foretell.frontend.operators.movement import MOVEMENT_IMPORTERS
from foretell.frontend.operators.normalisation import NORMALISATION_IMPORTERS
from foretell.frontend.operators.placement import PLACEMENT_IMPORTERS
from foretell.frontend.operators.quantise import QUANTISE_IMPORTERS
from foretell.frontend.operators.recurrent import RECURRENT_IMPORTERS
from foretell.frontend.operators.reduction import REDUCTION_IMPORTERS
from foretell.frontend.operators.resize import RESIZE_IMPORTERS
from foretell.frontend.operators.sample import SAMPLE_IMPORTERS
from foretell.frontend.operators.scan import SCAN_IMPORTERS
from foretell.frontend.operators.window import WINDOW_IMPORTERS

IMPORTERS: dict[tuple[str, str], Importer] = {
    ("", name): importer
    for table in (
        ELEMENTWISE_IMPORTERS,
        MOVEMENT_IMPORTERS,
        REDUCTION_IMPORTERS,
        CONTRACTION_IMPORTERS,
        CONTROL_IMPORTERS,
        WINDOW_IMPORTERS,
        SAMPLE_IMPORTERS,
        RESIZE_IMPORTERS,
        NORMALISATION_IMPORTERS,
        ATTENTION_IMPORTERS,
        QUANTISE_IMPORTERS,
        FOURIER_IMPORTERS,
        PLACEMENT_IMPORTERS,
        SCAN_IMPORTERS,
        RECURRENT_IMPORTERS,
    )
    for name, importer in table.items()
}
