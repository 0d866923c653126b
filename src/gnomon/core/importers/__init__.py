"""Importers of crontabs, systemd timers and Kubernetes CronJobs: text in; jobs and notes about differences out."""
