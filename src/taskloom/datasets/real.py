"""SARCOS, School and 15-Scenes: from a local folder, or fetched once, in scikit-learn's manner."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
from scipy.io import loadmat
from sklearn.utils import Bunch

from .download import Remote, get_data_home, obtain

Array = np.ndarray
Folder = str | os.PathLike | None

SARCOS = [
    Remote("sarcos_inv.mat", "http://www.gaussianprocess.org/gpml/data/sarcos_inv.mat"),
    Remote("sarcos_inv_test.mat", "http://www.gaussianprocess.org/gpml/data/sarcos_inv_test.mat"),
]
_PYMTL = "https://raw.githubusercontent.com/tjanez/PyMTL/970607e070b2a0d616d6c6248e6485b99cbb0d8c/data/school/"
SCHOOL = [Remote(name, _PYMTL + name) for name in ("school_b.mat", *(f"school_{k}_indexes.mat" for k in range(1, 11)))]
SCHOOL_SHA256 = "3b1f45f1adcea75eb9b2c276f4bd012072f2a1ceeadd540f57a454dee22f1f11"  # of its arrays, as bytes
SARCOS_SUMS = (68763.492958, 607377.199042)  # over X and over torque 1 of the training file


def _archive(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def fetch_sarcos(*, data_home: Folder = None, download_if_missing: bool = True) -> Bunch:
    """SARCOS inverse dynamics: 21 inputs of a robot arm (positions, velocities, accelerations), 7 torques.

    Read from ``sarcos.npz`` in the data folder, or from the published ``sarcos_inv.mat`` and ``sarcos_inv_test.mat``, which
    are downloaded when they are not there.

    The published test file is every tenth row of the training file, and neighbouring rows are nearly equal: see
    ``test_rows``, and split by blocks of time.

    Parameters
    ----------
    data_home : path, default=None
        The data folder; ``None`` is the environment variable ``TASKLOOM_DATA``, else ``~/taskloom_data``.
    download_if_missing : bool, default=True
        Whether to use the network; otherwise a missing file raises ``OSError``.

    Returns
    -------
    Bunch
        ``X`` (44484 x 21, rows in the order of time), ``Y`` (44484 x 7, NaN where a torque is not known), ``complete`` (rows
        with all torques), ``test_rows`` (the published test set), ``feature_names``, ``target_names``, ``DESCR``.
    """
    folder = get_data_home(data_home)
    if (folder / "sarcos.npz").exists():
        found = _archive(folder / "sarcos.npz")
        X, Y, test_rows = found["X"], found["Y"], found["test_rows"]
    else:
        train, _ = obtain(
            "SARCOS", SARCOS, folder, download_if_missing, "sarcos.npz, or sarcos_inv.mat and sarcos_inv_test.mat"
        )
        table = np.asarray(loadmat(train)["sarcos_inv"], dtype=float)
        X, Y, test_rows = table[:, :21], table[:, 21:], np.arange(0, len(table), 10)
        sums = (X.sum(), Y[:, 0].sum())
        if not (table.shape == (44484, 28) and np.allclose(sums, SARCOS_SUMS, rtol=1e-6)):
            raise ValueError(f"{train} does not hold SARCOS (shape {table.shape}, sums {sums}): delete it and fetch again")
    parts = ("position", "velocity", "acceleration")
    return Bunch(
        X=X,
        Y=Y,
        complete=~np.isnan(Y).any(axis=1),
        test_rows=test_rows,
        feature_names=[f"{part} {joint}" for part in parts for joint in range(1, 8)],
        target_names=[f"torque {joint}" for joint in range(1, 8)],
        DESCR="SARCOS inverse dynamics (Vijayakumar and Schaal 2000; Rasmussen and Williams 2006), rows in the order of time.",
    )


def fetch_school(*, data_home: Folder = None, download_if_missing: bool = True) -> Bunch:
    """School: exam scores of 15362 pupils of 139 schools of the Inner London Education Authority, with the ten usual splits.

    Read from ``school.npz`` in the data folder, or made of ``school_b.mat`` and ``school_1_indexes.mat`` to
    ``school_10_indexes.mat`` (Argyriou, Evgeniou and Pontil), which are downloaded when they are not there.

    Parameters
    ----------
    data_home, download_if_missing
        As in :func:`fetch_sarcos`.

    Returns
    -------
    Bunch
        ``X`` (15362 x 27, without the constant column), ``y`` (exam score), ``task`` (school), ``train_split`` (10 x 15362,
        true where a pupil is for training), ``DESCR``.
    """
    folder = get_data_home(data_home)
    if (folder / "school.npz").exists():
        found = _archive(folder / "school.npz")
    else:
        paths = obtain("School", SCHOOL, folder, download_if_missing, "school.npz, or school_b.mat and its ten index files")
        found = _school_from_matlab(paths)
        if school_digest(found) != SCHOOL_SHA256:
            raise ValueError(f"{paths[0]} does not hold School: delete it and fetch again")
    return Bunch(
        X=found["X"][:, :27].astype(float),
        y=found["y"].astype(float),
        task=found["task"].astype(int),
        train_split=found["train_split"],
        DESCR="School (Inner London Education Authority): 139 schools are the tasks, pupils' exam scores the targets.",
    )


def _school_from_matlab(paths: list[Path]) -> dict[str, Array]:
    """The arrays of ``school.npz``; MATLAB counts from 1, and ``task_indexes`` holds where each task begins."""
    table = loadmat(paths[0])
    X, y = table["x"].T.astype(np.uint8), table["y"].ravel().astype(np.uint8)
    starts = table["task_indexes"].ravel().astype(int) - 1
    split = np.zeros((len(paths) - 1, len(y)), bool)
    for k, path in enumerate(paths[1:]):
        split[k, loadmat(path)["tr"].ravel().astype(int) - 1] = True
    task = np.repeat(np.arange(starts.size, dtype=np.uint8), np.diff(np.append(starts, len(y))))
    return {"X": X, "y": y, "task": task, "train_split": split}


def school_digest(arrays: dict[str, Array]) -> str:
    """A checksum of the contents, whatever file they came in."""
    joined = b"".join(np.ascontiguousarray(arrays[name]).tobytes() for name in ("X", "y", "task", "train_split"))
    return hashlib.sha256(joined).hexdigest()


def fetch_scenes(*, data_home: Folder = None, download_if_missing: bool = True) -> Bunch:
    """15-Scenes: LLC features (a linear kernel of Wang et al. 2010) of 4485 images of 15 scene categories.

    Read from ``scene15_llc.npz`` in the data folder. The features of the paper were never published, so there is no address
    to download from; the archive was computed from the images by the same recipe.

    Parameters
    ----------
    data_home, download_if_missing
        As in :func:`fetch_sarcos`.

    Returns
    -------
    Bunch
        ``X`` (4485 x 2048; ``X @ X.T`` is the kernel of the features), ``y`` (class), ``target_names``, ``duplicate_of`` (first
        row with the same image, or -1), ``DESCR``.
    """
    folder = get_data_home(data_home)
    remote = Remote("scene15_llc.npz", "")
    (path,) = obtain("15-Scenes (LLC features)", [remote], folder, download_if_missing, "scene15_llc.npz")
    found = _archive(path)
    return Bunch(
        X=found["X"].astype(float),
        y=found["label"].astype(int),
        target_names=[str(name) for name in found["class_names"]],
        duplicate_of=found["duplicate_of"].astype(int),
        DESCR="15-Scenes (Oliva and Torralba 2001; Fei-Fei and Perona 2005; Lazebnik et al. 2006), LLC features of our own.",
    )
