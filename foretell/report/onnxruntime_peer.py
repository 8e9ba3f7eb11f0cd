"""ONNX Runtime as a second opinion, where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def is_installed() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None


def try_run(path: str, feeds: Mapping[str, Array], names: Sequence[str]) -> tuple[dict[str, Array] | None, str]:
    """(outputs by name, nothing) or (None, why not): it does not run every model."""
    import onnxruntime

    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    refusals = (
        *(state.EPFail, state.Fail, state.InvalidArgument, state.InvalidGraph, state.InvalidProtobuf, state.NoModel),
        *(state.NoSuchFile, state.NotImplemented, state.RuntimeException, RuntimeError, ValueError),
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        taken = {value.name for value in session.get_inputs()}
        results = session.run(list(names), {name: array for name, array in feeds.items() if name in taken})
    except refusals as error:
        return None, str(error).splitlines()[0][:200]
    return {name: np.asarray(array) for name, array in zip(names, results, strict=True)}, ""
