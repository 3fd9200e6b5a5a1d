"""Pin BLAS before NumPy is imported (small eigenproblems with a starved pool are 50 times slower); draw without a screen."""

import os

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(pool, "1")
os.environ.setdefault("MPLBACKEND", "Agg")
