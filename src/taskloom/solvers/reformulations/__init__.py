"""The same problem in another form, with the way back."""
