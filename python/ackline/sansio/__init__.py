"""The bare state machines: bytes in, events and bytes out, and the time is told to them."""
