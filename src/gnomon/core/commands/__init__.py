"""Commands: which tenants may run them, what their text means, and which of them a policy allows."""
