"""The HTTP API: routes over the services that the command line uses, too."""
