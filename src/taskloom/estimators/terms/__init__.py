"""Predictors that are sums of terms: what a term is, how it is read from a table, fits and predictions."""
