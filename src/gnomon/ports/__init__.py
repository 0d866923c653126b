"""What the services need of the world, as small protocols in words of the domain."""
