"""Process settings for speed: environment variables before torch is imported, memory and threads after."""

import contextlib
import ctypes
import functools
import os
import time
from collections.abc import Iterator
from typing import Literal

# Idle OpenMP threads spin by default. On a machine whose cores are busy with other runs this is up to fifteen times
# slower; letting them sleep costs nothing measurable on an idle machine.
# Pages of 2 MB for large buffers, where the kernel gives them: glibc reads its tunables as a process starts, so workers
# that are started later have them. The same numbers come in 3 % less processor time.
_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}

_GAIN = 1.2  # a bf16 product that many times as fast leaves a step faster, whose other parts gain nothing
_ROUNDS = 9

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # glibc's malloc.h


def environment() -> None:
    """Sets environment variables that are read once; call it before torch is imported.

    OpenMP and tokenizers read them in this process, glibc in those that it starts. What is set already stays.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


@contextlib.contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Rounds numbers too small for full precision to zero, where the processor can.

    Words that a model all but rules out have such numbers for shares and gradients, and CPUs multiply them up to five
    times slower than others. Afterwards they count again: numpy and scipy compute with them elsewhere.
    """
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def settle(threads: int | None = None) -> None:
    """Keeps freed memory in the process (glibc) and sets the number of torch's threads.

    Training frees and allocates the same large buffers at every step; by default glibc returns them to the kernel each
    time, and the page faults of reallocation cost up to a third of a step.
    """
    import torch

    with contextlib.suppress(OSError, AttributeError):  # other C libraries keep their own policy
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_M_TOP_PAD, 64 << 20)
    if threads is not None:
        torch.set_num_threads(threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)  # else Lightning sets others where processes share a training


@functools.cache
def precision() -> Literal["fp32", "bf16"]:
    """The precision in which this machine trains faster, by a product of a training; its processor has one thread."""
    import torch

    is_gpu, threads = torch.cuda.is_available(), torch.get_num_threads()
    device, rows, width = ("cuda", 8192, 768) if is_gpu else ("cpu", 2048, 128)
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    torch.set_num_threads(1)
    try:
        for dtype in [*seconds] * _ROUNDS:
            states, table = (torch.ones(n, width, dtype=dtype, device=device) for n in (rows, 4 * width))
            (states @ table.T)[0, 0].item()  # waits for a GPU
            began = time.perf_counter()
            (states @ table.T)[0, 0].item()
            seconds[dtype].append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    fp32, bf16 = map(min, seconds.values())
    return "bf16" if fp32 >= _GAIN * bf16 else "fp32"
