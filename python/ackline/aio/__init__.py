"""The links of `ackline` for asyncio, under the same names."""
