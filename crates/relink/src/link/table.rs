//! The transition tables of `docs/protocols/relink.md`, for the tests that compare them with the state machines.
//!
//! `ACKLINE_WRITE_TABLES=1 cargo test -p ackline-relink --lib the_table -- --test-threads 1` writes them into the
//! page.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fmt::{Debug, Write as _};
use std::path::Path;

/// Returns one line for each state and input that changes the state.
pub(super) fn transitions<S: Copy + Debug + PartialEq, I: Copy>(
    states: &[S],
    inputs: &[(I, &str)],
    after: impl Fn(S, I) -> S,
) -> String {
    let mut lines = String::from("| state | input | state after |\n|---|---|---|\n");
    for state in states {
        for (input, name) in inputs {
            let then = after(*state, *input);
            if then != *state {
                writeln!(lines, "| `{state:?}` | {name} | `{then:?}` |").unwrap();
            }
        }
    }
    lines
}

/// Compares a table with the one in the page, or writes it there.
pub(super) fn assert_documented(name: &str, table: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocols/relink.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let begin = format!("<!-- transitions of an {name}: begin -->\n\n");
    let end = format!("\n<!-- transitions of an {name}: end -->");
    let (head, rest) = text.split_once(&begin).unwrap();
    let (found, tail) = rest.split_once(&end).unwrap();
    if std::env::var_os("ACKLINE_WRITE_TABLES").is_some() {
        std::fs::write(&page, format!("{head}{begin}{table}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(found, table, "ACKLINE_WRITE_TABLES=1 writes the table anew");
}
