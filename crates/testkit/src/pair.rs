//! pair: filled by its author.
