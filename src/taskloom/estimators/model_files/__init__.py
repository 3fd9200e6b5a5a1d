"""Fitted estimators as model files, and back."""
