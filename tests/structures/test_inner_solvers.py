"""Newton's method in a box."""

import numpy as np

from taskloom.structures.inner_solvers import newton_in_box


def test_newton_in_a_box_meets_its_conditions():
    draw = np.random.default_rng(5)
    B, c = draw.normal(size=(6, 6)), draw.normal(size=6)
    H = B @ B.T + 1e-3 * np.eye(6)
    low, high = -np.full(6, 0.5), np.full(6, 0.7)
    x = newton_in_box(lambda x: (x @ H @ x / 2 + c @ x, H @ x + c, lambda free: H[np.ix_(free, free)]), 0 * c, low, high, 1e-12)
    gradient = H @ x + c
    assert np.abs(x - np.clip(x - gradient, low, high)).max() < 1e-10
