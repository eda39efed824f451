"""Exit codes of the process of a run. 0 means that there is a record, whatever its outcome."""

RECORDED = 0
FAILED = 1  # no record: the process could not write one
DISK_FULL = 74
HELD = 75  # another process makes the same run
INTERRUPTED = 143  # no record: it was told to stop, or its launcher died
