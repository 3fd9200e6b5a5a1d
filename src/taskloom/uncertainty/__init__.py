"""Uncertainty of a fit: posteriors and leave-one-out predictions."""
