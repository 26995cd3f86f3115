"""The chain: load, encode, fit in stages, evaluate and report; each stage is kept on disk.

``python -m pipelines.run CONFIG.yaml``; the other pipelines are thin configurations of it.
"""
