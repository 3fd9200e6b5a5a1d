"""Regularisation strength and structure chosen by cross-validation."""
