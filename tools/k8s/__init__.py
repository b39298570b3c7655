"""Writes what k8s/ takes from deploy/: the deploy file of each overlay, alert rules, dashboards.

kustomize reads no file above the folder it is given, so these are copies. `make docs` writes them,
and a test compares.
"""
