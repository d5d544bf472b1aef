//! Dicts for Python whose members are the fields of a struct, by their names.

/// Sets members of a dict to the fields of a value that have their names.
macro_rules! set_fields {
    ($dict:expr, $of:expr, $($field:ident),+ $(,)?) => {
        $($dict.set_item(stringify!($field), &$of.$field)?;)+
    };
}
pub(crate) use set_fields;
