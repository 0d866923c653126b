"""Channels: services that tell people, each with the requests that it wants and the errors that it answers."""
