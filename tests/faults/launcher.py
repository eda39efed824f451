"""A launcher in a process of its own, for tests that kill it; without a ``__main__`` guard, as users write scripts."""

import signal
import sys

import torch

from ablations.core.store import Records
from ablations.planning import grids
from ablations.planning.plan import plan
from ablations.running.execute import execute
from lightning_modules.training.execution import Execution

# a test run started in the background hands down ignored signals, which these tests are about
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)

torch.set_num_threads(1)  # as the processes of the local executor do
grid, results, executor, devices, strategy = sys.argv[1:6]
records = Records(results)


def tell(event):
    print(event.kind, event.run_id, event.done, flush=True)


print("launcher", flush=True)
try:
    found, execution = plan(grids.read(grid), "smoke", records=records), Execution(int(devices), strategy=strategy)
    summary = execute(found, records, executor, on_event=tell, execution=execution)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
print("executed", summary.executed, "elsewhere", summary.elsewhere, flush=True)
