"""Fits over a Dask cluster: rows stay on the workers, and the client gets sums whose size does not grow with the tasks.

    model = taskloom.distributed.fit(MultiTaskRegressor("trace", task_column="shop"), frame, sales, client=client)

Dask is an extra (``pip install "taskloom[distributed]"``) and is imported when a fit begins. For the squared loss and a linear
kernel; task-specific inputs need a spectral structure, shared inputs take any.
"""

from .dask_fit import fit

__all__ = ["fit"]
