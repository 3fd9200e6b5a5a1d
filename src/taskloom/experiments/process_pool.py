"""Worker processes that end with their parent; those of a killed parent would wait for work forever."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

_watched: set[int] = set()


def end_with_parent(parent: int, every: float = 1.0) -> None:
    """In a worker process: leave once the process ``parent``, which started it, is gone.

    Does nothing in the parent itself, or where the worker was started by someone else (a cluster).
    """
    starter = multiprocessing.parent_process()  # known even if it died before this line: getppid() names another then
    if os.name != "posix" or starter is None or starter.pid != parent or parent in _watched:
        return
    _watched.add(parent)
    threading.Thread(target=_watch, args=(parent, every), daemon=True).start()


def _watch(parent: int, every: float) -> None:
    while os.getppid() == parent:
        time.sleep(every)
    os._exit(1)  # the parent is gone
