"""Tests of the dashboard. A package, because a benchmark of the same name would hide a folder without this file."""
