"""The supervised step: the best weights for a given structure."""
