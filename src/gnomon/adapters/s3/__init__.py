"""Object storage that speaks the protocol of Amazon S3."""
