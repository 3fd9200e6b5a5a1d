"""Where a fit stands, in a small file: the factor and what the walk remembers, for one problem and no other."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..persistence.atomic import atomic_path
from ..problem.solution import History
from .factor_descent import Descent

Array = np.ndarray
SAME = 1e-9  # numbers that sum up the data differ by rounding, if rows were partitioned in another way


@dataclass(frozen=True)
class Saved:
    """What was read: the factor, the steps that are remembered, and the history so far."""

    Q: Array
    pairs: list[tuple[Array, Array]]
    proximal_step: float
    history: History


@dataclass(frozen=True)
class Checkpoint:
    """A file for one problem; ``problem`` describes settings and data well enough to tell another one."""

    path: str | os.PathLike
    problem: dict[str, Any]

    def write(self, descent: Descent, history: History) -> None:
        """All at once or not at all: a fit that dies while it writes leaves the last file behind."""
        pairs = descent.memory.pairs
        columns: dict[str, Any] = {f"history_{name}": column for name, column in history.as_dict().items()}
        with atomic_path(self.path) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                problem=np.array(json.dumps(self.problem)),
                Q=descent.here.Q,
                steps=np.array([s for s, _, _ in pairs]),
                changes=np.array([y for _, y, _ in pairs]),
                jump=np.array(descent.proximal_step),
                **columns,
            )

    def read(self) -> Saved | None:
        """Where the fit was left, or ``None`` where there is no file yet; that of another problem is refused."""
        if not os.path.exists(self.path):
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            problem = json.loads(str(arrays["problem"]))
            history = History(*(arrays[f"history_{column.name}"].tolist() for column in fields(History)))
            pairs = list(zip(arrays["steps"], arrays["changes"], strict=True))
            saved = Saved(arrays["Q"], pairs, float(arrays["jump"]), history)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{self.path} is no checkpoint of a fit ({error}); remove it, or name another file") from None
        for name, ours in self.problem.items():
            theirs = problem.get(name)
            same = _close(ours, theirs) if isinstance(ours, float) else ours == theirs
            if not same:
                raise ValueError(
                    f"{self.path} is the checkpoint of another fit: its {name} was {theirs!r}, here it is {ours!r}; "
                    "name another file, or remove it to begin anew"
                )
        return saved


def _close(ours: float, theirs: Any) -> bool:
    return isinstance(theirs, float) and abs(ours - theirs) <= SAME * max(abs(ours), abs(theirs))
