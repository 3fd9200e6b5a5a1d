"""The campaign against our own library: draw a problem, fit it through the front door, judge the answer by other means."""

import os

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # two threads are asked for by name
    os.environ.setdefault(pool, "1")
