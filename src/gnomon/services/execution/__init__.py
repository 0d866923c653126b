"""Bring tasks to their end: dispatch, route, execute and reconcile them."""
