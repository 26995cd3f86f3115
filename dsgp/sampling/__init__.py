"""Markov chains: slice updates, samplers of additive models, and what their draws say of them."""
