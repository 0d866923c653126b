"""The policy kernel over gRPC and HTTP: clients that ask one, and servers that are one."""
