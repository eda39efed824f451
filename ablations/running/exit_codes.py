"""How the process of a run says what became of it. 0 means that it has made a record, whatever its outcome."""

RECORDED = 0
FAILED = 1  # no record: the process could not write one
DISK_FULL = 74
HELD = 75  # another process makes the same run, or the weights that it starts from
LATE = 76  # another process had recorded the run meanwhile; that record stays, and this work was done twice
FOUND = 77  # another process had recorded the run before this one began; nothing was done
UNFIT = 78  # this node cannot make runs: it lacks the code, the cache or the results; nothing was tried
NO_MEMORY = 79  # no record: the kernel killed the process for memory
AGAIN = 80  # it has made a record that does not stay: another attempt may come to something else
SPENT = 81  # the run has had as many attempts as it may; nothing was done
INTERRUPTED = 143  # no record: it received a request to stop, or its launcher died. The attempt does not count
DID_NOTHING = (HELD, FOUND, SPENT)  # no attempt was made
LEAVING = (RECORDED, LATE, DISK_FULL, *DID_NOTHING)  # the job that made it leaves the run at that
MOST_PUT_BACK = 20  # times a run is put back without that counting: one that ends its node would never end
