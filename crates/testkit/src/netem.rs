//! netem: filled by its author.
