"""Engines: the passes over the data that solvers need, wherever the rows are.

``base`` has the interface, ``local`` the implementation on arrays of NumPy, PyTorch or CuPy, ``solvers.factor.fitted_tasks``
the one for losses other than the squared one; ``distributed.dask_engine`` sums local passes over workers.
"""
