"""Markov chains: slice updates, samplers of additive models, and diagnostics of their draws."""
