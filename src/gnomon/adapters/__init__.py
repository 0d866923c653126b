"""Who provides what the ports ask for."""
