"""Penalties that users write: by methods, or as CVXPY expressions."""
