"""Helpers of the tests: commands, certificates and a proxy."""
