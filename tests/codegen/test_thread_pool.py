from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numpy as np
import pytest

from foretell.codegen import thread_pool
from foretell.codegen.thread_pool import MAX_THREADS, emit_thread_pool
from foretell.support.errors import TargetError
from foretell.target.resolve import resolve_target
from tests.codegen.jit_pool import DEEP_BYTES, PAGE_BYTES, JitPool

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, and counts threads in /proc")

LIBC = {
    "linux": """clock_gettime free getpid madvise memset mmap munmap posix_memalign pthread_attr_destroy
        pthread_attr_init pthread_attr_setstacksize pthread_create pthread_join
        sched_getaffinity sched_getcpu sched_setaffinity sched_yield syscall""",
    "apple": """clock_gettime free getpid memset posix_memalign pthread_attr_destroy pthread_attr_init
        pthread_attr_setstacksize pthread_cond_broadcast pthread_cond_init
        pthread_cond_wait pthread_create pthread_join pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock
        sched_yield""",
}


@pytest.fixture(scope="module", params=[False, True], ids=["linux", "portable"])
def jit(request: pytest.FixtureRequest) -> JitPool:
    return JitPool(portable=request.param)


@pytest.fixture
def pool(jit: JitPool) -> Iterator[int]:
    made = jit.create(2)
    assert made
    yield made
    jit.destroy(made)


def meet(jit: JitPool, pool: int, threads: int, sleep_us: int = 0) -> np.ndarray:
    """Run `threads` indices that wait for one another; -> rows of (thread, bits of a denormal number)."""
    context = np.zeros(3 + 2 * threads, np.int64)
    context[1:3] = threads, sleep_us
    jit.run(pool, "meet", context, threads)
    return context[3:].reshape(threads, 2)


def threads_of_process() -> int:
    return len(os.listdir("/proc/self/task"))


def run_in_child(body: Callable[[], bool]) -> bool:
    """Fork; the child ends with the answer of `body`, at the latest after 20 seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        os._exit(0 if body() else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("threads", [-1, 1, 2, 3, 8])
def test_every_index_is_run_once(jit: JitPool, threads: int) -> None:
    pool = jit.create(threads)
    for count in (-5, 0, 1, 2, 3, 7, 16, 1000, 100_003):
        array = np.zeros(max(count, 0) + 1, np.int64)
        for _ in range(3):
            jit.run(pool, "add_one", array, count)
        assert (array[:-1] == 3).all() and array[-1] == 0
    jit.destroy(pool)


def test_the_number_of_threads_is_limited(jit: JitPool) -> None:
    pool = jit.create(1_000_000)
    array = np.zeros(3000, np.int64)
    before = threads_of_process()
    jit.run(pool, "add_one", array, 3000)
    assert (array == 1).all()
    assert threads_of_process() < before + MAX_THREADS
    jit.destroy(pool)


def test_null_is_a_pool_of_one_thread(jit: JitPool) -> None:
    assert jit.create(1) is None
    array = np.zeros(100, np.int64)
    jit.run(None, "add_one", array, 100)
    assert (array == 1).all()
    jit.destroy(None)


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_work_at_the_same_time(jit: JitPool, threads: int) -> None:
    pool = jit.create(threads)
    for _ in range(50):
        rows = meet(jit, pool, threads)
        assert len(set(rows[:, 0])) == threads
    jit.destroy(pool)


def test_caller_sleeps_until_slow_workers_are_done(jit: JitPool, pool: int) -> None:
    for _ in range(5):
        rows = meet(jit, pool, 2, sleep_us=20_000)
        assert (rows[:, 0] != 0).all()


def test_nested_loops_run_on_the_thread_that_calls(jit: JitPool, pool: int) -> None:
    context = np.zeros(1 + 8 * 50, np.int64)
    context[0] = pool
    jit.run(pool, "nested", context, 50)
    assert (context[1:] == 1).all()


def test_workers_compute_in_the_mode_of_the_caller(jit: JitPool, pool: int) -> None:
    for flush in (0, 1, 0):
        jit.flush_denormals(flush)
        numbers = meet(jit, pool, 2)[:, 1]
        jit.flush_denormals(0)
        assert (numbers == 0).all() if flush else (numbers != 0).all()


def hammer(jit: JitPool, shared: int, seconds: float, seed: int) -> bool:
    """Loops over the shared pool and one of our own, nested ones too, checking every count."""
    own = jit.create(3)
    generator = np.random.default_rng(seed)
    end_s = time.monotonic() + seconds
    exact = True
    while time.monotonic() < end_s:
        pool = shared if generator.random() < 0.7 else own
        count = int(generator.integers(0, 3000))
        context = np.zeros(1 + 8 * count, np.int64)
        context[0] = pool
        if generator.random() < 0.1:
            jit.run(pool, "nested", context, count)
        else:
            jit.parallel_for(pool, jit.task("add_one"), context.ctypes.data + 8, 8 * count)
        exact &= bool((context[1:] == 1).all())
    jit.destroy(own)
    return exact


def test_many_threads_share_pools(jit: JitPool, seconds: float = 1.0) -> None:
    pool = jit.create(4)
    assert pool
    with ThreadPoolExecutor(8) as executor:
        assert all(executor.map(lambda seed: hammer(jit, pool, seconds, seed), range(8)))
    jit.destroy(pool)


@pytest.mark.slow
def test_many_threads_share_pools_for_long(jit: JitPool) -> None:
    test_many_threads_share_pools(jit, seconds=30.0)


@pytest.mark.parametrize("used_before", [False, True])
def test_fork(jit: JitPool, used_before: bool) -> None:
    pool = jit.create(2)
    assert pool

    def use() -> bool:
        return len(set(meet(jit, pool, 2)[:, 0])) == 2

    def use_in_child() -> bool:
        works = use() and run_in_child(use) and use()
        jit.destroy(pool)
        return works

    if used_before:
        assert use()
    assert run_in_child(use_in_child)
    assert run_in_child(lambda: jit.destroy(pool) is None)
    assert use()
    jit.destroy(pool)


def test_fork_while_a_loop_runs(jit: JitPool, pool: int) -> None:
    """The child inherits a pool that is busy for ever, with a worker that counts as active."""
    busy = threading.Thread(target=meet, args=(jit, pool, 2, 300_000))
    busy.start()
    time.sleep(0.1)
    assert run_in_child(lambda: len(set(meet(jit, pool, 2)[:, 0])) == 2)
    busy.join()
    assert len(set(meet(jit, pool, 2)[:, 0])) == 2


def test_workers_have_large_stacks(jit: JitPool) -> None:
    """Where threads are given 128 KB unless they ask for more, like those of musl."""

    def run() -> bool:
        libc, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(128)
        libc.pthread_attr_init(attributes)
        libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(128 << 10))
        small = libc.pthread_setattr_default_np(attributes) == 0
        pool, context = jit.create(2), np.array([0, 2, 0], np.int64)
        jit.run(pool, "deep", context, 2)
        jit.destroy(pool)
        return small and context[2] == DEEP_BYTES // PAGE_BYTES

    assert run_in_child(run)


def test_the_caller_works_alone_without_such_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No system gives a thread a stack of one byte."""
    monkeypatch.setattr(thread_pool, "STACK_BYTES", 1)
    jit = JitPool(portable=False)
    pool, array, before = jit.create(4), np.zeros(1000, np.int64), threads_of_process()
    jit.run(pool, "add_one", array, 1000)
    assert (array == 1).all() and threads_of_process() == before
    jit.destroy(pool)


def test_idle_workers_use_no_cpu(jit: JitPool, pool: int) -> None:
    meet(jit, pool, 2)
    time.sleep(0.01)
    started_s = time.process_time()
    time.sleep(1)
    assert time.process_time() - started_s < 0.02


def test_destroy_ends_the_workers(jit: JitPool) -> None:
    before = threads_of_process()
    for _ in range(50):
        pool = jit.create(3)
        assert pool
        meet(jit, pool, 3)
        jit.destroy(pool)
    assert threads_of_process() == before


@pytest.mark.parametrize(
    "name",
    [
        "x86-64-v2",
        "neoverse-n1",
        "aarch64-unknown-linux-musl:aarch64",
        "riscv64",
        "apple-m1",
        "x86_64-apple-macosx11.0.0:haswell",
    ],
)
def test_emits_for_other_targets(name: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = resolve_target(name)
    module = ir.Module("pool")
    module.triple = target.triple
    emit_thread_pool(module)
    called = {function.name for function in module.functions if function.is_declaration}
    libc = {name for name in called if not name.startswith("llvm.")}
    assert libc == set(LIBC["apple" if "apple" in target.triple else "linux"].split())
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(target.cpu, target.llvm_features, opt=2)
    assert machine.emit_object(parsed)


def test_the_module_is_the_same_every_time() -> None:
    def text() -> str:
        module = ir.Module("pool")
        module.triple = "x86_64-unknown-linux-gnu"
        emit_thread_pool(module)
        return str(module)

    assert text() == text()


def test_unknown_system_is_refused() -> None:
    module = ir.Module("pool")
    module.triple = "x86_64-pc-windows-msvc"
    with pytest.raises(TargetError, match="there is no thread pool for this target") as caught:
        emit_thread_pool(module)
    assert caught.value.got == "x86_64-pc-windows-msvc"
