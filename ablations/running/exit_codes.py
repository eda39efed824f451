"""How the process of a run ends. 0 means that there is a record, whatever its outcome."""

RECORDED = 0
DISK_FULL = 74
HELD = 75  # another process makes the same run
INTERRUPTED = 143  # ended before its record: asked to, or without a launcher
