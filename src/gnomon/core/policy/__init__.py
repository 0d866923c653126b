"""The policy: which tasks may run, and under which constraints."""
