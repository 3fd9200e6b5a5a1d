"""Many tasks that share few inputs: tasks of equal weight along an orthonormal basis of the span of their targets.

With the targets along the eigenvectors of the inputs (``r x T``) and equal weights of the tasks, a rotation of the tasks leaves
the squared loss as it is. A penalty of eigenvalues does not change either, so that the best weights lie in the span of the
targets: ``q`` directions of it take the place of the tasks. The basis takes the mean of the directions to the mean of the
tasks, which some penalties treat apart.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import helmert

from .shared_inputs import DiagonalInputs

Array = np.ndarray
MIN_TASKS_PER_DIRECTION = 2  # with fewer tasks, a rotation and the certificate of all tasks cost what it saves


class TaskSpan:
    """The span of the targets and of the mean of the tasks: ``T x q`` orthonormal, and the inputs along it."""

    def __init__(self, inputs: DiagonalInputs):
        T, q = inputs.c.size, inputs.d.size + 1
        Q, _ = np.linalg.qr(np.column_stack([np.ones(T), inputs.rows]))
        self.basis = Q @ helmert(q, full=True)
        self.diagonal = DiagonalInputs(inputs.d, inputs.targets @ self.basis, np.full(q, inputs.c.mean()))

    @classmethod
    def of(cls, inputs: DiagonalInputs) -> TaskSpan | None:
        """The span, if there are many more tasks than inputs, and their weights are equal."""
        many = inputs.c.size >= MIN_TASKS_PER_DIRECTION * (inputs.d.size + 1)
        return cls(inputs) if many and np.allclose(inputs.c, inputs.c[0], rtol=1e-13, atol=0.0) else None

    def to_inner(self, W: Array) -> Array:
        """Weights along the basis."""
        return W @ self.basis

    def to_original(self, W: Array) -> Array:
        """Weights of the tasks."""
        return W @ self.basis.T
