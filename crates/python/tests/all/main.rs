//! The tests of the modules that know nothing of Python, built without the rest of the native module.

#[path = "../../src/element.rs"]
#[allow(dead_code)] // its callers are Python's
mod element;
#[path = "../../src/element_columns.rs"]
#[allow(dead_code)] // its callers are Python's
mod element_columns;
#[path = "../../src/element_schema.rs"]
#[allow(dead_code)] // its callers are Python's
mod element_schema;
mod elements;
#[path = "../../src/json_lines.rs"]
#[allow(dead_code)] // its callers are Python's
mod json_lines;
#[path = "../../src/sink/stall_timer.rs"]
#[allow(dead_code)] // its callers are Python's
mod stall;
