//! The tests of the modules that know nothing of Python, built without the rest of the native module.

#[path = "../../src/sink/stall_timer.rs"]
#[allow(dead_code)] // its callers are Python's
mod stall;
