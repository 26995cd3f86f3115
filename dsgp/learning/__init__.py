"""Learning the hyperparameters."""
