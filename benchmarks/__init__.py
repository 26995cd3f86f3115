"""Speed of dsgp beside its peers; README.md says how to run it."""
