"""Dashboards, recording rules and alerts of deploy/, all from one description.

`python -m tools.dashboards` writes them; `python -m tools.dashboards list` prints every query.
"""
