"""The two fixture contracts that a release must meet; `python -m tools.acceptance` runs them."""
