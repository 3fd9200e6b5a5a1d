"""Small eigenproblems with a starved thread pool are 50 times slower: pin BLAS before NumPy is imported."""

import os

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(pool, "1")
