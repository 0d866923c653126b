"""The responses of the operations, shared by the API, its client and the command line.

Instants are in UTC. A field without a value is None: every response of a kind has the same fields. The class names are
the names of the OpenAPI schemas.
"""
