"""Builds the responses of the API (`core.responses`) from the views of the services.

The HTTP API and the command line show the same responses.
"""
