"""The thread pool and its parallel loop, as LLVM IR that any module can carry; it needs only libc.

    ptr  foretell_pool_create(i32 threads)                              null for one thread, or if memory is short
    void foretell_pool_destroy(ptr pool)                                while no loop runs; null is fine
    void foretell_parallel_for(ptr pool, ptr function, ptr context, i64 count)

calls `function(context, begin, end)` until every index of 0..count was covered once. The caller takes part, so a pool
of n threads has n - 1 workers. The caller computes everything itself, with no atomics, if the pool is null or
count <= 1; and so it does if the pool is busy: in a nested loop, or for a second thread.

The protocol is one word, `STATE`, changed only by atomic read-modify-write:

    epoch (32 bits) | JOINER | STOP | OPEN | asleep (12 bits) | active (12 bits)

- The caller takes the lock `BUSY` (acquire), writes the job, and adds one epoch and OPEN (release). If too few workers
  are awake, it wakes more.
- A worker that sees OPEN in an epoch it has not served adds itself to `active` (acquire). Only if OPEN was still set
  may it read the job; else it takes itself off again. So nobody waits for a worker that comes late or never.
- Every thread has a region of the indices, the same one in each loop over as many, so that what it wrote is still in
  its caches when it reads it. It claims halves of what is left by compare-and-swap on the region's `NEXT` and runs
  them; then it does the same with the regions of others.
- A worker leaves by subtracting itself from `active` (release). When nothing is left to claim, the caller clears OPEN
  and waits for `active` to be 0 (acquire): then all results are its to read, the job can change, and BUSY is freed.
- Who waits spins for SPIN_NANOSECONDS and then sleeps: workers until the epoch changes, after adding themselves to
  `asleep`; the caller, after setting JOINER, until the low half does, and the last worker to leave wakes it. All of it
  being one word, a change either comes before the one announcing sleep, which sees it, or after, and does the waking.
- Linux may wake a thread on the waker's own CPU though others are idle, and takes milliseconds to move it. So the
  caller forbids its CPU to workers that sleep, until they are awake.

Workers start at the first loop in each process. A forked child has none: it sees `MARKER` wiped, or else the parent's
process id in `PROCESS`, and starts its own. PROCESS is the negative id while that is done; meanwhile others run alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import llvmlite.ir as ir

from foretell.codegen.control_flow import break_if, loop, variable
from foretell.codegen.platform_calls import CONDITION_BYTES, MUTEX_BYTES, NULL, VOID, PlatformCalls
from foretell.codegen.types import I1, I8, I32, I64, POINTER

SPIN_NANOSECONDS = 100_000
"""How long a thread of the pool that waits keeps its core before it sleeps (docs/threads.md)."""
SPINS_PER_CLOCK = 64
"""Pauses between two looks at the clock."""
CLAIM = 2
"""A claim takes one of so many parts of the indices left in a region: large at first, single ones at the end."""
MAX_THREADS = 1024
STACK_BYTES = 8 << 20
"""The stack of a worker, whatever is usual: 8 MB with glibc, but 512 KB on macOS and 128 KB with musl.

A kernel keeps what lies between its nests there, and operands it has copied: 1 MB and more, of which only what is
touched takes memory. A multiple of every system's pages.
"""

ACTIVE = 1
ACTIVE_MASK = 0xFFF
ASLEEP_SHIFT = 12
ASLEEP = 1 << ASLEEP_SHIFT
ASLEEP_MASK = 0xFFF
OPEN, STOP, JOINER = 1 << 24, 1 << 25, 1 << 26
EPOCH_SHIFT = 32
EPOCH = 1 << EPOCH_SHIFT

TASK = ir.FunctionType(VOID, [POINTER, I64, I64])
"""(context, begin, end)"""
LINE_BYTES = 128
"""Two cache lines of x86, which fetches them in pairs, and one of Apple's: no false sharing."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the pool: where it is, and how it is read and changed."""

    offset_bytes: int
    type: ir.Type

    def address(self, builder: ir.IRBuilder, pool: ir.Value) -> ir.Value:
        return builder.gep(pool, [I64(self.offset_bytes)], source_etype=I8, inbounds=True)

    def load(self, builder: ir.IRBuilder, pool: ir.Value) -> ir.Value:
        return builder.load(self.address(builder, pool), typ=self.type)

    def store(self, builder: ir.IRBuilder, pool: ir.Value, value: ir.Value) -> None:
        builder.store(value, self.address(builder, pool))

    def load_atomic(self, builder: ir.IRBuilder, pool: ir.Value, ordering: str) -> ir.Value:
        return builder.load_atomic(self.address(builder, pool), ordering, self.type.width // 8, typ=self.type)

    def set(self, builder: ir.IRBuilder, pool: ir.Value, value: ir.Value) -> None:
        """An atomic store, ordered with nothing."""
        builder.atomic_rmw("xchg", self.address(builder, pool), value, "monotonic")

    def change(self, builder: ir.IRBuilder, pool: ir.Value, operation: str, value: int, ordering: str) -> ir.Value:
        """An atomic `add`, `sub`, `and`, `or` or `xchg`; -> the old value."""
        return builder.atomic_rmw(operation, self.address(builder, pool), self.type(value), ordering)

    def replace(self, builder: ir.IRBuilder, pool: ir.Value, old: ir.Value, new: ir.Value, ordering: str) -> ir.Value:
        """Compare and swap; -> whether `old` was there."""
        pair = builder.cmpxchg(self.address(builder, pool), old, new, ordering, "monotonic")
        return builder.extract_value(pair, 1)


# Written when workers start, then only read.
THREADS = Field(0, I32)
WORKERS = Field(4, I32)
PROCESS = Field(8, I32)
NEVER = Field(12, I32)
MARKER = Field(16, POINTER)
# The job, written by the caller while no worker is active.
FUNCTION = Field(LINE_BYTES, TASK.as_pointer())
CONTEXT = Field(LINE_BYTES + 8, POINTER)
FLOAT_MODE = Field(LINE_BYTES + 16, I64)
# What threads contend for, each on a line of its own.
BUSY = Field(2 * LINE_BYTES, I32)
STATE = Field(3 * LINE_BYTES, I64)
LOW_HALF = Field(STATE.offset_bytes, I32)
EPOCH_HALF = Field(STATE.offset_bytes + 4, I32)
LOCK = Field(4 * LINE_BYTES, I8)
SEATS = Field(LOCK.offset_bytes + MUTEX_BYTES + CONDITION_BYTES, I8)

# A seat per thread, the caller's first: its region of the job, and, for a worker, who sits there.
SEAT_BYTES = LINE_BYTES
NEXT = Field(0, I64)
END = Field(8, I64)
POOL = Field(16, POINTER)
HANDLE = Field(24, I64)
NUMBER = Field(32, I32)
THREAD = Field(36, I32)
SLEEPS = Field(40, I32)
FORBIDDEN = Field(44, I32)
NO_CPU = -1


@dataclass(frozen=True, slots=True)
class PoolFunctions:
    """What a module can call once it has a pool."""

    create: ir.Function
    destroy: ir.Function
    parallel_for: ir.Function


def emit_thread_pool(module: ir.Module, *, portable: bool = False) -> PoolFunctions:
    """Add the pool to a module whose triple is set. `portable` keeps to POSIX where Linux has better."""
    platform = PlatformCalls(module, portable=portable)
    run_claims = emit_run_claims(module)
    leave = emit_leave(module, platform)
    worker = emit_worker(module, platform, emit_enter(module, platform, leave), run_claims, leave)
    start = emit_start(module, platform, worker)
    join = emit_join(module, platform)
    return PoolFunctions(
        create=emit_create(module, platform),
        destroy=emit_destroy(module, platform),
        parallel_for=emit_parallel_for(module, platform, start, run_claims, join),
    )


def emit_run_claims(module: ir.Module) -> ir.Function:
    """void (pool, number): claim ranges of the job, those of one's own region first, until none is left."""
    function, builder, [pool, own] = _begin(module, "foretell_pool_run_claims", VOID, [POINTER, I32])
    task, context = FUNCTION.load(builder, pool), CONTEXT.load(builder, pool)
    threads = THREADS.load(builder, pool)
    visited = variable(builder, I32(0))
    with loop(builder) as done:
        past = builder.load(visited, typ=I32)
        break_if(builder, builder.icmp_signed(">=", past, threads), done)
        builder.store(builder.add(past, I32(1)), visited)
        seat = _seat(builder, pool, builder.urem(builder.add(own, past), threads))
        _run_region(builder, seat, task, context)
    builder.ret_void()
    return function


def _run_region(builder: ir.IRBuilder, seat: ir.Value, task: ir.Value, context: ir.Value) -> None:
    """Claim and run parts of a region until nothing is left of it."""
    limit = END.load(builder, seat)
    with loop(builder) as done:
        begin = NEXT.load_atomic(builder, seat, "monotonic")
        left = builder.sub(limit, begin)
        break_if(builder, builder.icmp_signed("<=", left, I64(0)), done)
        part = builder.udiv(left, I64(CLAIM))
        end = builder.add(begin, builder.select(builder.icmp_signed("<", part, I64(1)), I64(1), part))
        claimed = NEXT.replace(builder, seat, begin, end, "monotonic")
        with builder.if_then(claimed):
            builder.call(task, [context, begin, end])


def emit_worker(
    module: ir.Module, platform: PlatformCalls, enter: ir.Function, run_claims: ir.Function, leave: ir.Function
) -> ir.Function:
    """ptr (seat): a thread's life. It computes in the floating-point mode of whoever it works for."""
    function, builder, [seat] = _begin(module, "foretell_pool_worker", POINTER, [POINTER])
    pool, number = POOL.load(builder, seat), NUMBER.load(builder, seat)
    SLEEPS.set(builder, seat, I32(0))
    FORBIDDEN.set(builder, seat, I32(NO_CPU))
    THREAD.set(builder, seat, platform.thread_id(builder))
    served = variable(builder, I32(0))
    with loop(builder) as stopped:
        state = builder.call(enter, [pool, seat, builder.load(served, typ=I32)])
        break_if(builder, _has(builder, state, STOP), stopped)
        platform.set_float_mode(builder, FLOAT_MODE.load(builder, pool))
        builder.call(run_claims, [pool, number])
        builder.call(leave, [pool])
        builder.store(_epoch(builder, state), served)
    builder.ret(NULL)
    return function


def emit_enter(module: ir.Module, platform: PlatformCalls, leave: ir.Function) -> ir.Function:
    """i64 (pool, seat, served): wait for an epoch other than `served`, join the active, and return the state."""
    types = [POINTER, POINTER, I32]
    function, builder, [pool, seat, served] = _begin(module, "foretell_pool_enter", I64, types)

    def is_called(state: ir.Value) -> ir.Value:
        is_new = builder.icmp_signed("!=", _epoch(builder, state), served)
        return builder.or_(builder.and_(is_new, _has(builder, state, OPEN)), _has(builder, state, STOP))

    with loop(builder):
        with loop(builder) as called:
            spun = _spin(builder, platform, lambda: is_called(STATE.load_atomic(builder, pool, "monotonic")))
            break_if(builder, spun, called)
            SLEEPS.set(builder, seat, I32(1))
            before = STATE.change(builder, pool, "add", ASLEEP, "release")
            with builder.if_then(builder.not_(is_called(before))):
                _sleep(builder, platform, pool, EPOCH_HALF, _epoch(builder, before))
            STATE.change(builder, pool, "sub", ASLEEP, "monotonic")
            _settle(builder, platform, seat)
        state = STATE.change(builder, pool, "add", ACTIVE, "acquire")
        with builder.if_then(_has(builder, state, OPEN | STOP)):
            builder.ret(state)
        builder.call(leave, [pool])
    builder.unreachable()
    return function


def _settle(builder: ir.IRBuilder, platform: PlatformCalls, seat: ir.Value) -> None:
    """A worker that has woken up may run anywhere again."""
    SLEEPS.set(builder, seat, I32(0))
    if not platform.uses_linux:
        return
    forbidden = FORBIDDEN.change(builder, seat, "xchg", NO_CPU, "monotonic")
    with builder.if_then(builder.icmp_signed("!=", forbidden, I32(NO_CPU)), likely=False):
        platform.forbid_cpu(builder, I32(0), forbidden, forbid=False)


def emit_leave(module: ir.Module, platform: PlatformCalls) -> ir.Function:
    """void (pool): a worker is no longer active; the last one wakes a caller that sleeps."""
    function, builder, [pool] = _begin(module, "foretell_pool_leave", VOID, [POINTER])
    before = STATE.change(builder, pool, "sub", ACTIVE, "release")
    last = builder.icmp_unsigned("==", builder.and_(before, I64(JOINER | ACTIVE_MASK)), I64(JOINER | ACTIVE))
    with builder.if_then(last):
        platform.wake(builder, LOCK.address(builder, pool), LOW_HALF.address(builder, pool), I32(1))
    builder.ret_void()
    return function


def emit_join(module: ir.Module, platform: PlatformCalls) -> ir.Function:
    """void (pool): close the job and wait until no worker is active."""
    function, builder, [pool] = _begin(module, "foretell_pool_join", VOID, [POINTER])

    def is_done(state: ir.Value) -> ir.Value:
        return builder.not_(_has(builder, state, ACTIVE_MASK))

    before = STATE.change(builder, pool, "and", ~OPEN, "acquire")
    with builder.if_then(is_done(before)):
        builder.ret_void()
    with builder.if_then(_spin(builder, platform, lambda: is_done(STATE.load_atomic(builder, pool, "acquire")))):
        builder.ret_void()
    STATE.change(builder, pool, "or", JOINER, "monotonic")
    with loop(builder) as done:
        state = STATE.load_atomic(builder, pool, "acquire")
        break_if(builder, is_done(state), done)
        _sleep(builder, platform, pool, LOW_HALF, builder.trunc(state, I32))
    STATE.change(builder, pool, "and", ~JOINER, "monotonic")
    builder.ret_void()
    return function


def emit_start(module: ir.Module, platform: PlatformCalls, worker: ir.Function) -> ir.Function:
    """i1 (pool): make sure that this process has workers; false while another thread starts them."""
    function, builder, [pool] = _begin(module, "foretell_pool_start", I1, [POINTER])
    here = platform.process_id(builder)
    starting = builder.neg(here)
    owner = PROCESS.load_atomic(builder, pool, "acquire")
    with builder.if_then(builder.icmp_signed("==", owner, here)):
        builder.ret(I1(1))
    with builder.if_then(builder.icmp_signed("==", owner, starting)):
        builder.ret(I1(0))
    is_ours = PROCESS.replace(builder, pool, owner, starting, "acquire")
    with builder.if_then(builder.not_(is_ours)):
        builder.ret(I1(0))
    # After a fork these hold whatever the parent's threads were doing.
    for field in (STATE, BUSY):
        field.store(builder, pool, field.type(0))
    platform.make_lock(builder, LOCK.address(builder, pool))
    _start_workers(builder, platform, pool, worker)
    builder.atomic_rmw("xchg", PROCESS.address(builder, pool), here, "release")
    marker = MARKER.load(builder, pool)
    with builder.if_then(builder.icmp_unsigned("!=", marker, NEVER.address(builder, pool))):
        builder.atomic_rmw("xchg", marker, I32(1), "release")
    builder.ret(I1(1))
    return function


def emit_parallel_for(
    module: ir.Module, platform: PlatformCalls, start: ir.Function, run_claims: ir.Function, join: ir.Function
) -> ir.Function:
    """void (pool, function, context, count): see the top of this file."""
    types = [POINTER, TASK.as_pointer(), POINTER, I64]
    function, builder, [pool, task, context, count] = _begin(module, "foretell_parallel_for", VOID, types, public=True)
    alone = builder.append_basic_block("alone")

    def alone_if(condition: ir.Value) -> None:
        break_if(builder, condition, alone)

    alone_if(builder.icmp_unsigned("==", pool, NULL))
    alone_if(builder.icmp_signed("<=", count, I64(1)))
    is_marked = builder.load_atomic(MARKER.load(builder, pool), "acquire", 4, typ=I32)
    with builder.if_then(builder.icmp_signed("==", is_marked, I32(0))):
        alone_if(builder.not_(builder.call(start, [pool])))
    is_free = BUSY.replace(builder, pool, I32(0), I32(1), "acquire")
    alone_if(builder.not_(is_free))
    _publish(builder, platform, pool, task, context, count)
    builder.call(run_claims, [pool, I32(0)])
    builder.call(join, [pool])
    BUSY.change(builder, pool, "xchg", 0, "release")
    builder.ret_void()

    builder.position_at_end(alone)
    with builder.if_then(builder.icmp_signed(">", count, I64(0))):
        builder.call(task, [context, I64(0), count])
    builder.ret_void()
    return function


def emit_create(module: ir.Module, platform: PlatformCalls) -> ir.Function:
    """ptr (threads): memory for a pool, which has no workers yet."""
    function, builder, [wanted] = _begin(module, "foretell_pool_create", POINTER, [I32], public=True)
    with builder.if_then(builder.icmp_signed("<=", wanted, I32(1))):
        builder.ret(NULL)
    is_small = builder.icmp_signed("<", wanted, I32(MAX_THREADS))
    threads = builder.select(is_small, wanted, I32(MAX_THREADS))
    seats_bytes = builder.zext(builder.mul(threads, I32(SEAT_BYTES)), I64)
    pool = platform.allocate(builder, builder.add(I64(SEATS.offset_bytes), seats_bytes), LINE_BYTES)
    with builder.if_then(builder.icmp_unsigned("==", pool, NULL)):
        builder.ret(NULL)
    THREADS.store(builder, pool, threads)
    page = platform.map_wiped_page(builder)
    has_page = builder.icmp_unsigned("!=", page, NULL)
    MARKER.store(builder, pool, builder.select(has_page, page, NEVER.address(builder, pool)))
    builder.ret(pool)
    return function


def emit_destroy(module: ir.Module, platform: PlatformCalls) -> ir.Function:
    """void (pool): end the workers, if they are of this process, and free everything."""
    function, builder, [pool] = _begin(module, "foretell_pool_destroy", VOID, [POINTER], public=True)
    with builder.if_then(builder.icmp_unsigned("==", pool, NULL)):
        builder.ret_void()
    owner = PROCESS.load_atomic(builder, pool, "acquire")
    with builder.if_then(builder.icmp_signed("==", owner, platform.process_id(builder))):
        STATE.change(builder, pool, "add", EPOCH | STOP, "release")
        everyone = I32(MAX_THREADS)
        platform.wake(builder, LOCK.address(builder, pool), EPOCH_HALF.address(builder, pool), everyone)
        _join_workers(builder, platform, pool)
    if platform.uses_linux:
        marker = MARKER.load(builder, pool)
        with builder.if_then(builder.icmp_unsigned("!=", marker, NEVER.address(builder, pool))):
            platform.unmap_page(builder, marker)
    platform.call(builder, "free", VOID, [pool])
    builder.ret_void()
    return function


def _publish(
    builder: ir.IRBuilder,
    platform: PlatformCalls,
    pool: ir.Value,
    task: ir.Value,
    context: ir.Value,
    count: ir.Value,
) -> None:
    """Write the job, open it, and wake as many workers as it can use and are not awake."""
    job = {FUNCTION: task, CONTEXT: context, FLOAT_MODE: platform.float_mode(builder)}
    for field, value in job.items():
        field.store(builder, pool, value)
    _share_out(builder, pool, count)
    before = STATE.change(builder, pool, "add", EPOCH | OPEN, "release")
    workers = builder.zext(WORKERS.load(builder, pool), I64)
    asleep = builder.and_(builder.lshr(before, I64(ASLEEP_SHIFT)), I64(ASLEEP_MASK))
    with builder.if_then(builder.icmp_unsigned("!=", asleep, I64(0)), likely=False):
        helpers = builder.sub(count, I64(1))
        useful = builder.select(builder.icmp_signed("<", helpers, workers), helpers, workers)
        missing = builder.sub(useful, builder.sub(workers, asleep))
        with builder.if_then(builder.icmp_signed(">", missing, I64(0))):
            _keep_off_this_cpu(builder, platform, pool)
            lock, word = LOCK.address(builder, pool), EPOCH_HALF.address(builder, pool)
            platform.wake(builder, lock, word, builder.trunc(missing, I32))


def _share_out(builder: ir.IRBuilder, pool: ir.Value, count: ir.Value) -> None:
    """Regions of equal length, to within one index."""
    threads = builder.zext(THREADS.load(builder, pool), I64)
    length, longer = builder.udiv(count, threads), builder.urem(count, threads)
    end = variable(builder, I64(0))
    with _each_seat(builder, pool, threads) as (number, seat):
        begin = builder.load(end, typ=I64)
        extra = builder.zext(builder.icmp_unsigned("<", number, longer), I64)
        builder.store(builder.add(begin, builder.add(length, extra)), end)
        NEXT.store(builder, seat, begin)
        END.store(builder, seat, builder.load(end, typ=I64))


def _keep_off_this_cpu(builder: ir.IRBuilder, platform: PlatformCalls, pool: ir.Value) -> None:
    """Forbid this CPU to workers that sleep."""
    if not platform.uses_linux:
        return
    here = platform.cpu(builder)
    seats = builder.zext(builder.add(WORKERS.load(builder, pool), I32(1)), I64)
    with _each_seat(builder, pool, seats, first=1) as (_, seat):
        is_asleep = builder.icmp_signed("!=", SLEEPS.load_atomic(builder, seat, "monotonic"), I32(0))
        with builder.if_then(is_asleep):
            FORBIDDEN.set(builder, seat, here)
            platform.forbid_cpu(builder, THREAD.load_atomic(builder, seat, "monotonic"), here, forbid=True)


def _start_workers(builder: ir.IRBuilder, platform: PlatformCalls, pool: ir.Value, worker: ir.Function) -> None:
    """As many as wanted, or as many as the system allows; WORKERS is the number that run.

    Without stacks as large as tasks may need there are none: the caller then computes everything itself.
    """
    wanted = builder.sub(THREADS.load(builder, pool), I32(1))
    WORKERS.store(builder, pool, I32(0))
    with platform.thread_attributes(builder, STACK_BYTES) as attributes, loop(builder) as done:
        started = WORKERS.load(builder, pool)
        break_if(builder, builder.icmp_signed(">=", started, wanted), done)
        number = builder.add(started, I32(1))
        seat = _seat(builder, pool, number)
        POOL.store(builder, seat, pool)
        NUMBER.store(builder, seat, number)
        handle = HANDLE.address(builder, seat)
        error = platform.call(builder, "pthread_create", I32, [handle, attributes, worker, seat])
        break_if(builder, builder.icmp_signed("!=", error, I32(0)), done)
        WORKERS.store(builder, pool, number)


def _join_workers(builder: ir.IRBuilder, platform: PlatformCalls, pool: ir.Value) -> None:
    seats = builder.zext(builder.add(WORKERS.load(builder, pool), I32(1)), I64)
    with _each_seat(builder, pool, seats, first=1) as (_, seat):
        platform.call(builder, "pthread_join", I32, [HANDLE.load(builder, seat), NULL])


def _seat(builder: ir.IRBuilder, pool: ir.Value, number: ir.Value) -> ir.Value:
    place = builder.mul(builder.zext(number, I64), I64(SEAT_BYTES))
    return builder.gep(SEATS.address(builder, pool), [place], source_etype=I8)


@contextmanager
def _each_seat(
    builder: ir.IRBuilder, pool: ir.Value, count: ir.Value, first: int = 0
) -> Iterator[tuple[ir.Value, ir.Value]]:
    """A loop over the numbers and addresses of seats first..count."""
    index = variable(builder, I64(first))
    with loop(builder) as done:
        number = builder.load(index, typ=I64)
        break_if(builder, builder.icmp_unsigned(">=", number, count), done)
        builder.store(builder.add(number, I64(1)), index)
        yield number, _seat(builder, pool, builder.trunc(number, I32))


def _spin(builder: ir.IRBuilder, platform: PlatformCalls, condition: Callable[[], ir.Value]) -> ir.Value:
    """Wait until the condition holds or SPIN_NANOSECONDS have passed; -> whether it holds.

    Every few microseconds the core is offered to others: whoever is waited for may be queued behind this very thread.
    """
    deadline = builder.add(platform.nanoseconds(builder), I64(SPIN_NANOSECONDS))
    turns = variable(builder, I32(1))
    with loop(builder) as done:
        break_if(builder, condition(), done)
        platform.pause(builder)
        turn = builder.load(turns, typ=I32)
        builder.store(builder.add(turn, I32(1)), turns)
        is_time_to_look = builder.icmp_unsigned("==", builder.urem(turn, I32(SPINS_PER_CLOCK)), I32(0))
        with builder.if_then(is_time_to_look):
            break_if(builder, builder.icmp_signed(">", platform.nanoseconds(builder), deadline), done)
            platform.call(builder, "sched_yield", I32, [])
    return condition()


def _sleep(builder: ir.IRBuilder, platform: PlatformCalls, pool: ir.Value, word: Field, value: ir.Value) -> None:
    platform.sleep(builder, LOCK.address(builder, pool), word.address(builder, pool), value)


def _has(builder: ir.IRBuilder, state: ir.Value, bits: int) -> ir.Value:
    return builder.icmp_unsigned("!=", builder.and_(state, I64(bits)), I64(0))


def _epoch(builder: ir.IRBuilder, state: ir.Value) -> ir.Value:
    return builder.trunc(builder.lshr(state, I64(EPOCH_SHIFT)), I32)


def _begin(
    module: ir.Module, name: str, result: ir.Type, arguments: Sequence[ir.Type], *, public: bool = False
) -> tuple[ir.Function, ir.IRBuilder, tuple[ir.Value, ...]]:
    """A new function. Public ones merge when modules are linked, and stay though nothing in the module calls them."""
    function = ir.Function(module, ir.FunctionType(result, arguments), name)
    function.linkage = "weak_odr" if public else "internal"
    function.attributes.add("nounwind")
    return function, ir.IRBuilder(function.append_basic_block("entry")), function.args
