"""The output policy: which outputs are held back or redacted before anything can read them."""
