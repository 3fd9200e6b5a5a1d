"""Fits over a Dask cluster: the data stay with the workers, and sums that do not grow with the tasks come back.

    model = taskloom.distributed.fit(MultiTaskRegressor("trace", task_column="shop"), frame, sales, client=client)

Dask is an extra (``pip install "taskloom[distributed]"``) and is imported when a fit begins. For the squared loss and a linear
kernel; tasks with inputs of their own under structures that may sit on the features, tasks that share theirs under any.
"""

from .dask_fit import fit

__all__ = ["fit"]
