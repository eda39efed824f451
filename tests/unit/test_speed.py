"""Settings of a process for speed reach the processes that it starts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
STARTED = """
block = bytearray(64 << 20)
print(any("hg" in line.split() for line in open("/proc/self/smaps") if line.startswith("VmFlags")))
"""
STARTS = f"""
import subprocess, sys
from lightning_modules.speed import environment
environment()
subprocess.run([sys.executable, "-c", {STARTED!r}], check=True)
"""


def glibc() -> tuple[int, ...]:
    try:
        named = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError):
        named = ""
    return tuple(map(int, re.findall(r"\d+", named)))


@pytest.mark.skipif(
    not HUGE.exists() or "[madvise]" not in HUGE.read_text() or glibc() < (2, 35),
    reason="this kernel gives large pages to all or to none, or its C library asks for none",
)
@pytest.mark.parametrize(("chosen", "has"), [(None, "True"), ("", "False")])
def test_large_buffers_of_workers_have_large_pages_unless_the_user_says_otherwise(chosen, has):
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    environment |= {} if chosen is None else {"GLIBC_TUNABLES": chosen}
    done = subprocess.run([sys.executable, "-c", STARTS], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == [has]
