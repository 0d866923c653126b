"""Authentication: keys, signed tokens and the policies that accept them."""
