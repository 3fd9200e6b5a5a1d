"""The command line as the tests call it: in this process, or in one of its own."""

import os
from pathlib import Path

import taskloom
from taskloom import cli

SOURCE = str(Path(taskloom.__file__).parents[1])
QUICK = ["--alphas", "3", "--cv", "3", "--structure", "trace"]
LONG = ["--target", "score", "--task", "school"]


def taskloom_(*argv):
    return cli.run([str(word) for word in argv])


def environment(**more):
    return {**os.environ, "PYTHONPATH": SOURCE, "OPENBLAS_NUM_THREADS": "1", **more}
