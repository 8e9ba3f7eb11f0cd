"""What run-time support asks of libc and of the CPU: everything about it that depends on the triple.

Linux offers the futex and memory that a forked child sees wiped. Elsewhere POSIX has to do: a mutex with a condition
variable, and comparing process ids. `portable=True` asks for that on Linux too, which is how it is tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import llvmlite.ir as ir

from foretell.codegen.control_flow import break_if, loop
from foretell.codegen.types import I8, I32, I64, POINTER
from foretell.support.errors import TargetError
from foretell.target.hardware_spec import ARCHITECTURES

VOID = ir.VoidType()
NULL = ir.Constant(POINTER, None)
FUTEX_SYSCALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
GETTID_SYSCALL = {"x86_64": 186, "aarch64": 178, "riscv64": 178}
FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE = 128, 129
CLOCK_MONOTONIC = {"linux": 1, "darwin": 6}
PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, MADV_WIPEONFORK = 0x3, 0x22, 18
MXCSR_FLAGS = 0x3F
"""The sticky exception flags of x86: what has happened, not how to compute."""
MUTEX_BYTES = CONDITION_BYTES = 128
"""More than pthread_mutex_t and pthread_cond_t take on any system."""
ATTRIBUTES_WORDS = 16
"""More 64-bit words than pthread_attr_t takes on any system: glibc's is 64 bytes on AArch64, Apple's too, musl's 56."""
CPU_MASK_BYTES = 1024
"""A set of 8,192 CPUs, as many as Linux can be built for."""
PAGE_BYTES = 65_536
"""The largest page of a kernel for AArch64; memory is wiped by whole pages."""


class PlatformCalls:
    """Emits the calls into one module, for the system and the architecture of its triple."""

    def __init__(self, module: ir.Module, *, portable: bool = False) -> None:
        self.module = module
        self.architecture = ARCHITECTURES.get(module.triple.partition("-")[0], "")
        self.system = "linux" if "linux" in module.triple else "darwin" if "apple" in module.triple else ""
        self.uses_linux = self.system == "linux" and not portable
        if not (self.architecture and self.system):
            raise TargetError(
                "there is no thread pool for this target",
                expected="a triple of Linux or macOS on x86-64, AArch64 or RISC-V",
                got=module.triple,
                hint="name the system, as in x86_64-unknown-linux-gnu",
            )

    def call(
        self, builder: ir.IRBuilder, name: str, result: ir.Type, arguments: Sequence[ir.Value], fixed: int | None = None
    ) -> ir.Value:
        """Call a C function or an intrinsic, declared at its first use; variadic after `fixed` arguments."""
        types = [argument.type for argument in arguments]
        type = ir.FunctionType(result, types[:fixed], var_arg=fixed is not None)
        return builder.call(self.module.globals.get(name) or ir.Function(self.module, type, name), arguments)

    def process_id(self, builder: ir.IRBuilder) -> ir.Value:
        return self.call(builder, "getpid", I32, [])

    def nanoseconds(self, builder: ir.IRBuilder) -> ir.Value:
        """A clock that never goes back. Linux reads it in user mode, in some 20 ns."""
        time = _stack(builder, ir.LiteralStructType([I64, I64]))
        self.call(builder, "clock_gettime", I32, [I32(CLOCK_MONOTONIC[self.system]), time])
        seconds = builder.load(time, typ=I64)
        rest = builder.load(builder.gep(time, [I64(8)], source_etype=I8), typ=I64)
        return builder.add(builder.mul(seconds, I64(1_000_000_000)), rest)

    def pause(self, builder: ir.IRBuilder) -> None:
        """Tell the core that this is a spin loop. Arm's `yield` does nothing on most cores; `isb` waits a little."""
        match self.architecture:
            case "x86_64":
                self.call(builder, "llvm.x86.sse2.pause", VOID, [])
            case "aarch64":
                self.call(builder, "llvm.aarch64.isb", VOID, [I32(15)])
            case _:
                pass  # RISC-V's is an extension, Zihintpause, without which LLVM refuses it

    def thread_id(self, builder: ir.IRBuilder) -> ir.Value:
        """What the scheduler calls this thread; -1 where there is no need to know."""
        if not self.uses_linux:
            return I32(-1)
        number = I64(GETTID_SYSCALL[self.architecture])
        return builder.trunc(self.call(builder, "syscall", I64, [number], fixed=1), I32)

    def cpu(self, builder: ir.IRBuilder) -> ir.Value:
        """The number of the CPU that runs this thread; -1 where the system does not say."""
        return self.call(builder, "sched_getcpu", I32, []) if self.uses_linux else I32(-1)

    def forbid_cpu(self, builder: ir.IRBuilder, thread: ir.Value, cpu: ir.Value, *, forbid: bool) -> None:
        """Take a CPU from those that a thread may run on, or give it back; nothing happens if none would be left."""
        mask = _stack(builder, I8, CPU_MASK_BYTES)
        arguments = [thread, I64(CPU_MASK_BYTES), mask]
        written = self.call(builder, "sched_getaffinity", I32, arguments)
        with builder.if_then(builder.icmp_signed(">=", written, I32(0))):
            number = builder.zext(cpu, I64)
            byte = builder.gep(mask, [builder.lshr(number, I64(3))], source_etype=I8)
            bit = builder.shl(I8(1), builder.trunc(builder.and_(number, I64(7)), I8))
            old = builder.load(byte, typ=I8)
            new = builder.and_(old, builder.not_(bit)) if forbid else builder.or_(old, bit)
            builder.store(new, byte)
            self.call(builder, "sched_setaffinity", I32, arguments)

    def float_mode(self, builder: ir.IRBuilder) -> ir.Value:
        """How this thread rounds and whether it flushes denormals, as an i64. RISC-V cannot flush: 0."""
        match self.architecture:
            case "x86_64":
                place = _stack(builder, I32)
                self.call(builder, "llvm.x86.sse.stmxcsr", VOID, [place])
                return builder.zext(builder.and_(builder.load(place, typ=I32), I32(~MXCSR_FLAGS)), I64)
            case "aarch64":
                return self.call(builder, "llvm.aarch64.get.fpcr", I64, [])
            case _:
                return I64(0)

    def set_float_mode(self, builder: ir.IRBuilder, mode: ir.Value) -> None:
        match self.architecture:
            case "x86_64":
                place = _stack(builder, I32)
                builder.store(builder.trunc(mode, I32), place)
                self.call(builder, "llvm.x86.sse.ldmxcsr", VOID, [place])
            case "aarch64":
                self.call(builder, "llvm.aarch64.set.fpcr", VOID, [mode])
            case _:
                pass

    def allocate(self, builder: ir.IRBuilder, size_bytes: ir.Value, alignment_bytes: int) -> ir.Value:
        """Zeroed memory for `free`, or null."""
        place = _stack(builder, POINTER)
        builder.store(NULL, place)
        self.call(builder, "posix_memalign", I32, [place, I64(alignment_bytes), size_bytes])
        memory = builder.load(place, typ=POINTER)
        with builder.if_then(builder.icmp_unsigned("!=", memory, NULL)):
            self.call(builder, "memset", POINTER, [memory, I32(0), size_bytes])
        return memory

    def map_wiped_page(self, builder: ir.IRBuilder) -> ir.Value:
        """Memory that a forked child sees as zeros; null where the system (Linux before 4.14) has no such thing."""
        if not self.uses_linux:
            return NULL
        result = _stack(builder, POINTER)
        protection, kind = I32(PROT_READ_WRITE), I32(MAP_PRIVATE_ANONYMOUS)
        page = self.call(builder, "mmap", POINTER, [NULL, I64(PAGE_BYTES), protection, kind, I32(-1), I64(0)])
        failed = self.call(builder, "madvise", I32, [page, I64(PAGE_BYTES), I32(MADV_WIPEONFORK)])
        builder.store(page, result)
        with builder.if_then(builder.icmp_signed("!=", failed, I32(0))):
            self.unmap_page(builder, page)
            builder.store(NULL, result)
        return builder.load(result, typ=POINTER)

    def unmap_page(self, builder: ir.IRBuilder, page: ir.Value) -> None:
        self.call(builder, "munmap", I32, [page, I64(PAGE_BYTES)])

    @contextmanager
    def thread_attributes(self, builder: ir.IRBuilder, stack_bytes: int) -> Iterator[ir.Value]:
        """For `pthread_create`: threads with so large a stack. Where the system refuses, the block is skipped."""
        attributes = _stack(builder, I64, ATTRIBUTES_WORDS)
        error = self.call(builder, "pthread_attr_init", I32, [attributes])
        with builder.if_then(builder.icmp_signed("==", error, I32(0))):
            error = self.call(builder, "pthread_attr_setstacksize", I32, [attributes, I64(stack_bytes)])
            with builder.if_then(builder.icmp_signed("==", error, I32(0))):
                yield attributes
            self.call(builder, "pthread_attr_destroy", I32, [attributes])

    def make_lock(self, builder: ir.IRBuilder, lock: ir.Value) -> None:
        """Make what `sleep` and `wake` need, at `lock`."""
        if not self.uses_linux:
            self.call(builder, "pthread_mutex_init", I32, [lock, NULL])
            self.call(builder, "pthread_cond_init", I32, [_condition(builder, lock), NULL])

    def sleep(self, builder: ir.IRBuilder, lock: ir.Value, word: ir.Value, value: ir.Value) -> None:
        """Sleep while the i32 at `word` is `value`, until woken; may return early."""
        if self.uses_linux:
            self._futex(builder, word, FUTEX_WAIT_PRIVATE, value)
            return
        self.call(builder, "pthread_mutex_lock", I32, [lock])
        with loop(builder) as done:
            now = builder.load_atomic(word, "monotonic", 4, typ=I32)
            break_if(builder, builder.icmp_signed("!=", now, value), done)
            self.call(builder, "pthread_cond_wait", I32, [_condition(builder, lock), lock])
        self.call(builder, "pthread_mutex_unlock", I32, [lock])

    def wake(self, builder: ir.IRBuilder, lock: ir.Value, word: ir.Value, count: ir.Value) -> None:
        """Wake `count` threads that sleep at `word`, or more; the word has changed already."""
        if self.uses_linux:
            self._futex(builder, word, FUTEX_WAKE_PRIVATE, count)
            return
        self.call(builder, "pthread_mutex_lock", I32, [lock])
        self.call(builder, "pthread_cond_broadcast", I32, [_condition(builder, lock)])
        self.call(builder, "pthread_mutex_unlock", I32, [lock])

    def _futex(self, builder: ir.IRBuilder, word: ir.Value, operation: int, value: ir.Value) -> None:
        number = I64(FUTEX_SYSCALL[self.architecture])
        self.call(builder, "syscall", I64, [number, word, I32(operation), value, NULL, NULL, I32(0)], fixed=1)


def _stack(builder: ir.IRBuilder, type: ir.Type, count: int = 1) -> ir.Value:
    with builder.goto_entry_block():
        return builder.alloca(type, size=count)


def _condition(builder: ir.IRBuilder, lock: ir.Value) -> ir.Value:
    return builder.gep(lock, [I64(MUTEX_BYTES)], source_etype=I8)
