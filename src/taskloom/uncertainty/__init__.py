"""How sure a fit is: posteriors and leave-one-out predictions."""
