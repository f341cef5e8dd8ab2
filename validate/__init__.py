"""Does a trained network agree: simulations and comparisons with theory."""
