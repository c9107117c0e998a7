"""Scheduler, nanny and worker of Dask that serve no pages and import nothing from their folders; and a client."""

import sys
from typing import Any

from distributed import Client, Nanny, Scheduler, Worker


class _Private:
    local_directory: str

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Dask puts it first; nobody else may enter it.
        sys.path[:] = [entry for entry in sys.path if entry != self.local_directory]

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Do nothing: Dask opens a web server on all interfaces whether or not a dashboard is wanted."""


class PagelessScheduler(_Private, Scheduler):
    """A scheduler without a web server."""


class PathlessNanny(_Private, Nanny):
    """Nanny that starts a worker process, and starts it again."""


class PagelessWorker(_Private, Worker):
    """A worker without a web server; the jobs of a batch system name it on their command line."""


class FirmClient(Client):
    """A client that does not connect again to a lost scheduler: that may leave its TLS socket open (Python 3.11)."""

    async def _reconnect(self) -> None:
        """End all work as cancelled, in place of Dask's attempts."""
        self._handle_cancelled_keys(list(self.futures), reason="scheduler-connection-lost")
        self.scheduler_comm = None
