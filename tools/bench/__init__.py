"""The benchmarks of docs/benchmarks.md; `python -m tools.bench` lists them."""
