"""Data sets as a user has them: a table with a task column, a table of targets, or a table with labels.

Archives are looked for in ``../shared/data`` beside the repository; sets without their archive are skipped with a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Array = np.ndarray
ARCHIVES = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows: inputs, targets (a column a task in a wide table), and the task of each row of a long one."""

    X: Array
    y: Array
    task: Array | None = None

    def rows(self, which: Array) -> Part:
        return Part(self.X[which], self.y[which], None if self.task is None else self.task[which])

    def table(self) -> Array:
        """The inputs, with the task as the last column of a long table."""
        return self.X if self.task is None else np.column_stack([self.X, self.task])


@dataclass(frozen=True, eq=False)
class DataSet:
    """All rows, what is predicted, how errors are counted, and training and test rows for each repeat."""

    name: str
    form: str  # "long", "wide", "binary" (long, with two classes) or "labels" (several classes, no tasks)
    error: str  # a name of scoring.ERRORS
    all: Part
    split: Callable[[int], tuple[Array, Array]]
    note: str = ""
    kept_aside: bool = False  # from all tuning of our own portfolio
    time: int | None = None  # the column in whose first and second power mixed models have slopes for each task


def archive(name: str) -> dict[str, Array]:
    with np.load(ARCHIVES / f"{name}.npz", allow_pickle=False) as held:
        return {key: held[key] for key in held.files}


# --- splits --------------------------------------------------------------------------------------------------------------


def some_of_each(task: Array, train: float, test: int | None = None) -> Callable[[int], tuple[Array, Array]]:
    """Rows of every task at random: a share below 1, or so many; the other rows (at most ``test`` of them) are predicted."""

    def split(repeat: int) -> tuple[Array, Array]:
        rng = np.random.default_rng(repeat)
        order = rng.permutation(len(task))
        order = order[np.argsort(task[order], kind="stable")]
        counts = np.unique(task, return_counts=True)[1]
        place = np.arange(len(task)) - np.repeat(np.cumsum(counts) - counts, counts)
        size = np.repeat(counts, counts)
        inside = place < (np.maximum(np.round(train * size), 1) if train < 1 else train)
        rest = rng.permutation(order[~inside])[:test]
        return np.sort(order[inside]), np.sort(rest)

    return split


def random_rows(n: int, train: float, test: int | None = None) -> Callable[[int], tuple[Array, Array]]:
    """Rows at random, a share or so many."""
    return some_of_each(np.zeros(n, dtype=int), train, test)


def given_folds(fold: Array) -> Callable[[int], tuple[Array, Array]]:
    """The fold of the repeat is predicted from the others."""
    return lambda repeat: (np.flatnonzero(fold != repeat % 5), np.flatnonzero(fold == repeat % 5))


# --- long tables ---------------------------------------------------------------------------------------------------------


def school(pupils: int | None) -> DataSet:
    """The customary splits of 75 %, or so many pupils of each school."""
    held = archive("school")
    whole = Part(held["X"][:, :27].astype(float), held["y"].astype(float), held["task"].astype(int))
    if pupils is None:
        custom = held["train_split"]
        return DataSet(
            "school",
            "long",
            "unexplained",
            whole,
            lambda repeat: (np.flatnonzero(custom[repeat % 10]), np.flatnonzero(~custom[repeat % 10])),
        )
    split = some_of_each(whole.task, pupils)
    return DataSet(f"school_{pupils}", "long", "unexplained", whole, split, f"{pupils} pupils a school")


def parkinsons() -> DataSet:
    held = archive("parkinsons")
    whole = Part(held["X"], held["Y"][:, 1], held["task"].astype(int))
    return DataSet(
        "parkinsons", "long", "unexplained", whole, some_of_each(whole.task, 30), "total UPDRS, 30 rows a patient", time=2
    )


def landmine(rows: int) -> DataSet:
    held = archive("landmine")
    whole = Part(held["X"], held["y"].astype(int), held["task"].astype(int))
    return DataSet(f"landmine_{rows}", "binary", "1 - AUC", whole, some_of_each(whole.task, rows), f"{rows} rows a field")


def imdb(share: int = 5) -> DataSet:
    """Films of every fifth director; types with 30 films and more as columns; the published folds."""
    held = archive("imdb")
    picked = np.random.default_rng(0).permutation(held["director"].max() + 1) % share == 0
    rows = np.flatnonzero(picked[held["director"]])
    kinds = np.flatnonzero(np.bincount(held["type"][rows]) >= 30)
    X = np.column_stack([held["X"][rows], held["words"][rows], held["type"][rows][:, None] == kinds]).astype(float)
    whole = Part(X, held["y"][rows].astype(float), held["director"][rows].astype(int))
    note = f"{len(rows)} films of a fifth of the directors"
    return DataSet("imdb_fifth", "long", "mean squared error", whole, given_folds(held["fold"][rows]), note)


def au_imports(share: int = 5) -> DataSet:
    held = archive("au_imports")
    picked = np.random.default_rng(0).permutation(held["task"].max() + 1) % share == 0
    rows = np.flatnonzero(picked[held["task"]])
    whole = Part(held["X"][rows], held["y"][rows], held["task"][rows].astype(int))
    note = f"{len(rows)} rows of a fifth of the commodities"
    return DataSet("au_imports_fifth", "long", "mean squared error", whole, given_folds(held["fold"][rows]), note, time=7)


# --- wide tables and labels ----------------------------------------------------------------------------------------------


def multi_target(name: str, train: float, test: int | None = None, kept_aside: bool = False) -> DataSet:
    held = archive(name)
    complete = np.isfinite(held["X"]).all(axis=1)
    whole = Part(held["X"][complete].astype(float), held["Y"][complete].astype(float))
    note = "" if train < 1 else f"{train:.0f} training rows"
    return DataSet(name, "wide", "aRRMSE", whole, random_rows(len(whole.y), train, test), note, kept_aside)


def sarcos() -> DataSet:
    """The complete rows of the published test file, 500 of them for training."""
    held = archive("sarcos_test")
    split = random_rows(len(held["X"]), 500)
    return DataSet("sarcos_500", "wide", "aRRMSE", Part(held["X"], held["Y"]), split, "500 training rows", kept_aside=True)


def linnerud() -> DataSet:
    from sklearn.datasets import load_linnerud

    held = load_linnerud()
    return DataSet("linnerud", "wide", "aRRMSE", Part(held.data, held.target), random_rows(20, 0.75), "15 training rows")


def digits() -> DataSet:
    from sklearn.datasets import load_digits

    held = load_digits()
    split = some_of_each(held.target, 30)
    return DataSet("digits_300", "labels", "error rate", Part(held.data, held.target), split, "30 images a digit")


def scenes() -> DataSet:
    held = archive("scene15_views")
    X, y = np.hstack([held[f"X{k}"] for k in (1, 2, 3)]).astype(float), held["y"].astype(int)
    split = some_of_each(y, 30)
    return DataSet("scenes_450", "labels", "error rate", Part(X, y), split, "30 images a class, three views side by side")


LOADERS: dict[str, Callable[[], DataSet]] = {
    "school": lambda: school(None),
    "school_10": lambda: school(10),
    "parkinsons": parkinsons,
    "landmine_20": lambda: landmine(20),
    "landmine_160": lambda: landmine(160),
    "imdb_fifth": imdb,
    "au_imports_fifth": au_imports,
    "mtr_atp1d": lambda: multi_target("mtr_atp1d", 0.75),
    "mtr_jura": lambda: multi_target("mtr_jura", 0.75),
    "mtr_rf1": lambda: multi_target("mtr_rf1", 1500, 2000),
    "linnerud": linnerud,
    "digits_300": digits,
    "scenes_450": scenes,
    "mtr_oes97": lambda: multi_target("mtr_oes97", 0.75, kept_aside=True),
    "sarcos_500": sarcos,
}


def data_sets(only: list[str]) -> Iterator[DataSet]:
    """The data sets that are there, one after the other; a line for each that is not."""
    for name, load in LOADERS.items():
        if only and name not in only:
            continue
        try:
            yield load()
        except FileNotFoundError as error:
            print(f"{name}: skipped, {Path(str(error.filename)).name} is not in ../shared/data", flush=True)


def powers(data: DataSet, train: Part, part: Part) -> Array | None:
    """Scaled time and its square, for slopes of each task."""
    if data.time is None:
        return None
    mine = train.X[:, data.time]
    time = (part.X[:, data.time] - mine.mean()) / mine.std()
    return np.column_stack([time, time**2])


def scaled(train: Part, new: Part) -> tuple[Array, Array]:
    """Inputs with mean 0 and standard deviation 1 over the training rows; constant columns are left out."""
    mean, std = train.X.mean(axis=0), train.X.std(axis=0)
    kept = std > 1e-12 * np.maximum(np.abs(mean), 1.0)
    return tuple((part.X[:, kept] - mean[kept]) / std[kept] for part in (train, new))  # type: ignore[return-value]
