"""Runs agents: the process in which a model is asked, and the tools that it may call outside of it."""
