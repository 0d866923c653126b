"""Migrations from one schema to the next, one file each."""
