"""What a structure says about a new task given the fitted ones (docs/estimators.md derives it)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._linalg import psd_eigh
from ..structures import Structure

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class NewTaskPrior:
    """The conditional law of a new task given the fitted ones."""

    mean: Array  # beta0: weights of the fitted tasks in the conditional mean
    loadings: Array  # M, T x q
    own_variance: float  # of the task-specific part

    def extended(self, n_tasks: int) -> NewTaskPrior:
        """The same for more tasks; those that were added have weight zero."""
        more = n_tasks - len(self.mean)
        return NewTaskPrior(np.pad(self.mean, (0, more)), np.pad(self.loadings, ((0, more), (0, 0))), self.own_variance)

    def with_ridge(self, rho: float, gram: Callable[[], Array]) -> NewTaskPrior:
        """With a ridge: ``D`` becomes ``(D^-1 + rho)^-1``, eigenvalue by eigenvalue, and the mean shrinks with it."""
        if rho == 0:
            return self
        e, V = psd_eigh(self.loadings.T @ gram() @ self.loadings) if self.loadings.size else (np.zeros(0), np.zeros((0, 0)))
        own = self.own_variance / (1 + rho * self.own_variance)
        after = (self.own_variance + e) / (1 + rho * (self.own_variance + e)) - own
        stretch = np.sqrt(np.divide(after, e, out=np.zeros_like(e), where=e > 0))
        return NewTaskPrior(self.mean / (1 + rho * self.own_variance), self.loadings @ (V * stretch), own)


def new_task_prior(
    structure: Structure, A: Array, gram: Callable[[], Array], relation: Array | None = None, weights: Array | None = None
) -> NewTaskPrior:
    """The prior of a new task under a fixed structure; ``gram`` returns the inner products of the tasks' functions.

    With ``weights`` (``T x d``) and fewer features than tasks, the decomposition is ``d x d``. With a ``relation``, the
    conditional law of a Gaussian with covariance ``A`` and these covariances with the new task.
    """
    T, tiny = len(A), np.finfo(float).tiny
    given = structure.new_task_conditional(T) if relation is None else None
    if given is not None:
        return NewTaskPrior(given[0], np.zeros((T, 0)), given[1])
    if relation is None and structure.either_side:
        if weights is not None and weights.shape[1] < T:
            g, V = psd_eigh(weights.T @ weights)
            V = weights @ (V / np.sqrt(np.maximum(g, tiny)))
        else:
            g, V = psd_eigh(gram())
        keep = g > 1e-12 * max(g[-1], tiny)
        g, V = g[keep], V[:, keep]
        a = np.sum(V * (A @ V), axis=0)  # A and W'W share their eigenvectors at the optimum
        return NewTaskPrior(np.zeros(T), V * np.sqrt(np.maximum(a, 0.0) / g), 0.0)
    a, V = psd_eigh(A)
    keep = a > 1e-10 * max(a[-1], tiny)
    root = V[:, keep] / np.sqrt(a[keep])  # W root root' W' = W A^+ W'
    if relation is not None:
        beta = root @ (root.T @ relation)
        own = float(np.mean(np.diag(A)) - beta @ A @ beta)
        if not own > 0:
            raise ValueError(
                "relation is too strong: the others would determine the new task (its conditional variance would be "
                f"{own:.3g}); scale relation down"
            )
        return NewTaskPrior(beta, np.zeros((T, 0)), own)
    size = float(np.sum(root * (gram() @ root)))
    loadings = root * np.sqrt(a.sum() / size) if size > 0 else root[:, :0]
    own = float(np.mean(1 / np.einsum("tq,tq->t", root, root))) if keep.all() else 0.0
    return NewTaskPrior(np.zeros(T), loadings, own)
