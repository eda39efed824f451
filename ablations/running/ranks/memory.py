"""How often the kernel has killed for memory, which it counts for each control group.

It imports only the standard library: a node may lack the rest.
"""

import contextlib
import re
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")  # a line for each hierarchy: its number, its controllers, the group
_MOUNT = Path("/sys/fs/cgroup")
KILLED = "the kernel killed the process for memory (signal 9)"
_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def kills() -> int:
    """How many processes of this process's control group the kernel has killed for memory; 0 where it does not say.

    Of cgroup v2 it is in ``memory.events``, of v1 in ``memory.oom_control``. A container may see its own group at the
    top, whatever its name.
    """
    with contextlib.suppress(OSError):
        for line in _GROUPS.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            kind, file = ("memory", "memory.oom_control") if controllers else ("", "memory.events")
            if kind not in controllers.split(","):
                continue
            for folder in (_MOUNT / kind / group.strip("/"), _MOUNT / kind):
                with contextlib.suppress(OSError):
                    if counted := _KILLS.search((folder / file).read_text()):
                        return int(counted[1])
    return 0
