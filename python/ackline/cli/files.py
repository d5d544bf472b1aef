"""The limit of open files of a command."""

import resource

__all__ = ["allow_files"]

_OTHERS = 1_000
"""Open files beside connections, generously: a spool's, and peers that are being turned away."""

_UNCLAIMED = 10
"""Connections for each extra one of a proxy that waits for its PROXY header."""


def allow_files(connections: int) -> None:
    """Raises the limit of open files for `connections`, as far as the system allows."""
    wanted = connections + connections // _UNCLAIMED + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft not in {resource.RLIM_INFINITY, hard} and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
