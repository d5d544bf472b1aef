//! vectors: filled by its author.
