"""A process that reads hostile models, so that whatever they do is done to it alone, and measured.

`python -m tests.frontend.hostile_process fuzz FIRST STOP quick|all`, or `... named NAME...`: two lines of JSON for
each case, one before it and one after it.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

ADDRESS_SPACE_BYTES = 2 << 30
"""Beyond what the process has mapped when it starts: an allocation bomb becomes a MemoryError."""


def read_and_simplify(source: bytes | str) -> str:
    """What becomes of a model: "ok", the name of the ForetellError, or "!" and what must not happen."""
    from foretell.frontend.import_onnx import import_onnx
    from foretell.graph.simplify import simplify
    from foretell.graph.verify import verify
    from foretell.support.errors import ForetellError

    try:
        graph = import_onnx(source).require_graph()
        verify(graph)
        verify(simplify(graph))
    except ForetellError as error:
        str(error)
        return type(error).__name__
    except Exception as failure:  # this is what we look for
        import traceback

        frames = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(failure.__traceback__)[-6:]]
        return f"!{type(failure).__name__}: {str(failure)[:150]!r} at {' > '.join(frames)}"
    return "ok"


def peak_bytes() -> int:
    """The most memory this process has had since `forget_peak`."""
    status = Path("/proc/self/status").read_text() if os.path.exists("/proc/self/status") else ""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)


def forget_peak() -> None:
    if os.path.exists("/proc/self/clear_refs"):
        Path("/proc/self/clear_refs").write_text("5")


def limit_address_space() -> None:
    if sys.platform == "linux":
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESS_SPACE_BYTES,) * 2)


def measure(name: str, source: bytes | str) -> dict[str, object]:
    gc.collect()
    forget_peak()
    before, start = peak_bytes(), time.process_time()
    outcome = read_and_simplify(source)
    seconds, growth = time.process_time() - start, peak_bytes() - before
    return {"name": name, "outcome": outcome, "seconds": seconds, "growth_bytes": growth}


def fuzz_cases(first: int, stop: int, all_modules: bool) -> Iterator[tuple[str, bytes]]:
    from tests.frontend.mutate_model import load_seeds, make_case

    seeds = load_seeds(all_modules)
    for number in range(first, stop):
        yield make_case(number, seeds)


def named_cases(names: Sequence[str]) -> Iterator[tuple[str, bytes | str]]:
    from tests.frontend.hostile_models import CASES

    for name in names:
        yield name, CASES[name][0]()


def main(kind: str, *arguments: str) -> None:
    """Report the start and the end of each case, so that a crash can be told from a hang."""
    warnings.simplefilter("ignore")
    cases: Iterator[tuple[str, bytes | str]]
    if kind == "fuzz":
        cases = fuzz_cases(int(arguments[0]), int(arguments[1]), arguments[2] == "all")
    else:
        cases = named_cases(arguments)
    read_and_simplify(b"")  # imports everything, so that a case is not charged with it
    limit_address_space()
    for name, source in cases:
        print(json.dumps({"begin": name}), flush=True)
        print(json.dumps(measure(name, source)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
