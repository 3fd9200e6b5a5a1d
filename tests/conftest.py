"""Pin BLAS before NumPy is imported (small eigenproblems with a starved pool are 50 times slower); draw without a screen."""

import os

import pytest
from hypothesis import settings

# The same examples in every run, so that a change is what makes a test fail; HYPOTHESIS_EXPLORE=1 looks for new ones.
settings.register_profile("steady", derandomize=True)
if not os.environ.get("HYPOTHESIS_EXPLORE"):
    settings.load_profile("steady")

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(pool, "1")
os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Tables of schools: long, wide, and with labels."""
    import numpy as np
    import pandas as pd

    place = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    n = 120
    frame = pd.DataFrame(
        {
            "pupil": [f"p{i}" for i in range(n)],
            "age": rng.normal(12, 2, n).round(2),
            "gender": rng.choice(["girl", "boy"], n),
            "boards": rng.choice(["true", "false"], n),
            "year": rng.integers(1, 4, n),
            "school": [f"school {i % 6}" for i in range(n)],
        }
    )
    signal_ = (frame.age - 12) + 2.0 * (frame.gender == "girl") + (frame.year == 2)
    frame["score"] = (signal_ + 0.3 * rng.normal(size=n)).round(4)
    frame["passed"] = np.where(signal_ + 0.3 * rng.normal(size=n) > 1, "yes", "no")
    frame.loc[3, "age"], frame.loc[5, "gender"] = np.nan, np.nan
    frame.to_csv(place / "long.csv", index=False)
    frame.to_parquet(place / "long.parquet")
    wide = frame.drop(columns=["school", "score", "passed"])
    for name in ("maths", "art", "sport"):
        wide[name] = signal_ + rng.normal(size=n)
        wide.loc[rng.random(n) < 0.4, name] = np.nan
    wide.to_csv(place / "wide.csv", index=False)
    return place


@pytest.fixture(scope="session")
def saved(folder):
    """A model of the long table."""
    from taskloom import cli

    path = folder / "m.taskloom"
    options = ["--alphas", "3", "--cv", "3", "--structure", "trace", "-q", "--save"]
    assert (
        cli.run(
            [
                "fit",
                f"{folder / 'long.csv'}",
                "--target",
                "score",
                "--task",
                "school",
                "--drop",
                "pupil,passed",
                *options,
                f"{path}",
            ]
        )
        == 0
    )
    return path
