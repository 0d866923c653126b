"""Agents: steps in which a model decides, with tools, within a budget."""
