"""Scheduler and worker of Dask that serve no pages."""

from __future__ import annotations

from typing import Any

from distributed import Scheduler, Worker


class _Pageless:
    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Do nothing: Dask opens a web server on all interfaces also where no dashboard is wanted."""


class PagelessScheduler(_Pageless, Scheduler):
    """A scheduler without a web server."""


class PagelessWorker(_Pageless, Worker):
    """A worker without a web server; the jobs of a batch system name it on their command line."""
