"""foretell: a deep-learning compiler that predicts performance instead of profiling it.

    model = foretell.compile("model.onnx")      # a CompiledModel: call it with arrays
    model.save("model.foretell")
    model = foretell.load("model.foretell")     # without the compiler, without ONNX

What is named here is imported when it is first used, so that loading a model stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretell.support import errors
from foretell.support.version import VERSION as __version__

if TYPE_CHECKING:
    from foretell.compiler import compile
    from foretell.runtime.load_model import load
    from foretell.runtime.session import CompiledModel

__all__ = ["CompiledModel", "__version__", "compile", "errors", "load"]


def __getattr__(name: str) -> object:
    match name:
        case "compile":
            from foretell.compiler import compile as found
        case "load":
            from foretell.runtime.load_model import load as found
        case "CompiledModel":
            from foretell.runtime.session import CompiledModel as found
        case _:
            raise AttributeError(f"module 'foretell' has no attribute {name!r}")
    globals()[name] = found
    return found
