"""Calls that may not take more time and memory than a limit: each in a process of its own, which the kernel ends."""

import math
import os
import pickle
import resource
import signal
import sys
import traceback
import warnings

import psutil
import torch

from lightning_modules.config import ConfigError


def limited(call, *given, seconds=4, megabytes=400):
    """What a call returns, within so many seconds of CPU time and so much memory beyond what is in use.

    Raises:
        ConfigError: As the call, with the same text.
        AssertionError: For any other error, and for a call that the limits ended.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads; the child starts none
        child = os.fork()
    if not child:
        _answer(writing, seconds, megabytes, call, given)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    assert answer, f"ended by signal {os.WTERMSIG(status)} within {seconds} s and {megabytes} MB"
    kind, said = pickle.loads(answer)
    if kind == "refused":
        raise ConfigError([said])
    assert kind == "returned", said
    return said


def _answer(writing, seconds, megabytes, call, given):
    """Makes the call in a child, which it ends."""
    try:
        torch.set_num_threads(1)
        signal.alarm(60)  # for one that waits
        memory = psutil.Process().memory_info().vms
        used = math.ceil(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
        resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, used + seconds + 1))
        if sys.platform == "linux":  # others do not keep this limit
            resource.setrlimit(resource.RLIMIT_AS, (memory + (megabytes << 20),) * 2)
        try:
            answer = "returned", call(*given)
        except ConfigError as error:
            answer = "refused", str(error)
        except BaseException:
            answer = "failed", traceback.format_exc()[-4000:]
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
    finally:
        os._exit(0)
