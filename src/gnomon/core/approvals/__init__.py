"""Approvals: what needs the consent of people, who may give it, and what it covers."""
