"""The dashboard: pages and forms under `/ui/`, made of the routes of the API with the roles of the caller."""
