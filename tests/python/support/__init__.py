"""Helpers of the tests: commands, certificates, a proxy, and both ends of a protocol."""
