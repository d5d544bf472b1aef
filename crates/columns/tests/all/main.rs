//! The crate from outside: tasks over real spools.

mod task;
