"""Solvers on a factor of the structure, with the tasks eliminated."""
