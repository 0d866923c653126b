"""Approvals: the consent of people to commands and tasks, the people who may give it, and the digest it is bound to."""
