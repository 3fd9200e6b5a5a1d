"""Checkpoints of a fit: the factor and the history, with a description of the problem."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass, field, fields
from math import isclose
from typing import Any

import numpy as np

from ..persistence.atomic import atomic_path
from ..problem.solution import History

Array = np.ndarray
RELATIVE_TOLERANCE = 1e-9  # sums over the data differ by rounding if rows are partitioned in another way


@dataclass(frozen=True)
class Checkpoint:
    """A file for one problem, identified by the settings and statistics in ``problem``."""

    path: str | os.PathLike
    every: int  # iterations between two checkpoints
    problem: dict[str, Any] = field(default_factory=dict)

    def write(self, Q: Array, history: History) -> None:
        """Write atomically: a fit that dies while it writes leaves the previous file."""
        columns: dict[str, Any] = {f"history_{name}": column for name, column in history.as_dict().items()}
        with atomic_path(self.path) as temporary, temporary.open("wb") as file:
            np.savez(file, problem=np.array(json.dumps(self.problem)), Q=Q, **columns)

    def read(self) -> tuple[Array, History] | tuple[None, None]:
        """The factor and the history of the checkpoint, if there is a file; one of another problem is refused."""
        if not os.path.exists(self.path):
            return None, None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            problem = json.loads(str(arrays["problem"]))
            history = History(*(arrays[f"history_{column.name}"].tolist() for column in fields(History)))
            saved = arrays["Q"], history
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{self.path} is no checkpoint of a fit ({error}); remove it, or name another file") from None
        for name, ours in self.problem.items():
            theirs = problem.get(name)
            numbers = isinstance(ours, float) and isinstance(theirs, float)
            if not (isclose(ours, theirs, rel_tol=RELATIVE_TOLERANCE) if numbers else ours == theirs):
                raise ValueError(
                    f"{self.path} is the checkpoint of another fit: its {name} was {theirs!r}, here it is {ours!r}; "
                    "name another file, or remove it to begin anew"
                )
        return saved
