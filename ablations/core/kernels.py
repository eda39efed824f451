"""The kernel of an executed notebook, ended only when it is idle.

jupyter_client begins each end of a kernel with an interrupt, which stops a cell that still runs. papermill asks the
kernel for its language last, and ends it on the reply. The kernel may then still be in the handler that replied, where
it takes an interrupt for Ctrl-C and says so: ``KeyboardInterrupt caught in kernel``. An idle kernel ignores it.
"""

import contextlib
from queue import Empty
from typing import Any

from nbclient.util import ensure_async, run_sync
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.log import logger

NAME = "ablations"  # of the engine


class _Client(PapermillNotebookClient):
    """Waits for the kernel to be idle after a reply, before anything else is done to it."""

    async def async_wait_for_reply(self, msg_id: str, cell: Any = None) -> dict[str, Any] | None:
        """See `nbclient`: the reply to a message."""
        reply = await super().async_wait_for_reply(msg_id, cell)
        with contextlib.suppress(Empty):  # a kernel that stays silent is ended all the same
            while reply is not None and not await self._is_idle_after(msg_id):
                pass
        return reply

    wait_for_reply = run_sync(async_wait_for_reply)

    async def _is_idle_after(self, msg_id: str) -> bool:
        """Whether the next thing that the kernel says is that it has done with a message."""
        assert self.kc is not None
        said = await ensure_async(self.kc.iopub_channel.get_msg(timeout=self.iopub_timeout))
        is_state = said["msg_type"] == "status" and said["content"]["execution_state"] == "idle"
        return is_state and said["parent_header"].get("msg_id") == msg_id


class _Engine(NBClientEngine):
    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> Any:
        """See `papermill`: executes a notebook."""
        given = {name: options[name] for name in ("extra_arguments",) if name in options}
        _Client(nb_man, kernel_name=kernel_name, startup_timeout=60, log=logger, **given).execute()


papermill_engines.register(NAME, _Engine)
