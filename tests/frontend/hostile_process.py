"""A process that reads hostile models, so that whatever they do is done to it alone, and measured.

`python -m tests.frontend.hostile_process KIND` takes the names of cases from its input, one a line, and writes two
lines of JSON for each: its name before it is read, what became of it after. KIND is "named" for `hostile_models`,
"quick" or "all" for numbered cases of `mutate_model` from few or all seeds.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
ADDRESS_SPACE_BYTES = 2 << 30
"""Beyond what the process has mapped when it starts: a larger allocation is a MemoryError."""
START_S, CASE_S = 120.0, 40.0
"""Wall time for the process to start, and for one case: what takes longer is a hang, also on a busy machine."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case: "ok", the name of a ForetellError, or "!" and what must not happen."""

    case: str
    result: str
    seconds: float = 0.0
    growth_bytes: int = 0
    detail: str = ""


# --- in the process ------------------------------------------------------------------------------------------


def read_and_simplify(source: bytes | str) -> str:
    """All that foretell does to a model before it runs; the result as in `Outcome`."""
    from foretell.frontend.import_onnx import import_onnx
    from foretell.graph.simplify import simplify
    from foretell.graph.verify import verify
    from foretell.support.errors import ForetellError

    try:
        graph = import_onnx(source).require_graph()
        verify(graph)
        verify(simplify(graph))
    except ForetellError as error:
        assert str(error)
        return type(error).__name__
    except BaseException as failure:  # this is what we look for
        frames = traceback.extract_tb(failure.__traceback__)[-6:]
        place = " > ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
        return f"!{type(failure).__name__}: {str(failure)[:150]!r} at {place}"
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
        allowed = mapped + ADDRESS_SPACE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))


def measure(case: str, detail: str, source: bytes | str) -> Outcome:
    """Read a model; time is that of this process alone, so that a busy machine does not count."""
    forget_peak()
    before, start = peak_bytes(), time.process_time()
    result = read_and_simplify(source)
    return Outcome(case, result, time.process_time() - start, peak_bytes() - before, detail)


def maker_of(kind: str) -> Callable[[str], tuple[str, bytes | str]]:
    """What makes a case of its name: a description, and the model."""
    if kind == "named":
        from tests.frontend.hostile_models import CASES

        return lambda name: (name, CASES[name][0]())
    from tests.frontend.mutate_model import load_seeds, make_case

    seeds = load_seeds(all_modules=kind == "all")
    return lambda name: make_case(int(name), seeds)


def main(kind: str) -> None:
    warnings.simplefilter("ignore")
    make = maker_of(kind)
    read_and_simplify(b"")  # imports everything, so that no case is charged with it
    limit_address_space()
    for line in sys.stdin:
        case = line.rstrip("\n")
        detail, source = make(case)
        if kind == "named":
            gc.collect()  # what the last case left is not this one's
        print(json.dumps({"begin": case, "detail": detail}), flush=True)
        print(json.dumps(asdict(measure(case, detail, source))), flush=True)


# --- outside -------------------------------------------------------------------------------------------------


def run_hostile(kind: str, cases: Sequence[str]) -> Iterator[Outcome]:
    """The outcomes of all cases, each in a process that is started again after one that kills it."""
    waiting = list(cases)
    while waiting:
        begun = ""
        for report in _run_process(kind, waiting):
            if "begin" in report:
                begun = str(report["detail"])
                continue
            yield Outcome(**report)  # pyright: ignore[reportArgumentType]
            waiting.pop(0)
            begun = ""
        if waiting:
            assert begun, "the process ended before it read anything"
            yield Outcome(waiting.pop(0), "!the process was killed: a crash, or no end", detail=begun)


def _run_process(kind: str, cases: Sequence[str]) -> Iterator[dict[str, object]]:
    """The lines a process writes until it ends, or writes nothing for too long."""
    with tempfile.TemporaryFile("w+") as names:
        names.write("".join(f"{case}\n" for case in cases))
        names.seek(0)
        command = [sys.executable, "-m", "tests.frontend.hostile_process", kind]
        with subprocess.Popen(command, stdin=names, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
            assert process.stdout is not None
            watchdog = threading.Timer(START_S, process.kill)
            watchdog.start()
            for line in process.stdout:
                watchdog.cancel()
                yield json.loads(line)
                watchdog = threading.Timer(CASE_S, process.kill)
                watchdog.start()
            watchdog.cancel()


if __name__ == "__main__":
    main(sys.argv[1])
