"""Checkpoints of a fit: the factor, the memory of L-BFGS and the history, with a description of the problem."""

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
RELATIVE_TOLERANCE = 1e-9  # sums over the data differ by rounding if rows are partitioned in another way


@dataclass(frozen=True)
class Saved:
    """The content of a checkpoint: the factor, the pairs of L-BFGS, and the history."""

    Q: Array
    pairs: list[tuple[Array, Array]]
    proximal_step: float
    history: History


@dataclass(frozen=True)
class Checkpoint:
    """A file for one problem, identified by the settings and statistics in ``problem``."""

    path: str | os.PathLike
    problem: dict[str, Any]

    def write(self, descent: Descent, history: History) -> None:
        """Write atomically: a fit that dies while it writes leaves the previous file."""
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
        """The checkpoint, or ``None`` if there is no file; one of another problem is refused."""
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
    return isinstance(theirs, float) and abs(ours - theirs) <= RELATIVE_TOLERANCE * max(abs(ours), abs(theirs))
