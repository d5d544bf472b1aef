//! Frames, handshakes and the texts inside frames: read, written and read again.

use ackline_core::described::{Args, Described as _};
use ackline_core::{ErrorKind as _, Inspect as _, Inspected, Value};
use bytes::BytesMut;

use crate::frame::{Inspector, Unit};
use crate::text::is_field;
use crate::{Description, Kind, Limits};

/// The first byte chooses the kind of thing.
pub(super) fn roundtrip(data: &[u8]) {
    let (choice, bytes) = data.split_first().unwrap_or((&0, &[]));
    let unit = unit(*choice);
    let mut input = BytesMut::from(bytes);
    let mut inspector = Inspector::new(limits(), unit.clone());
    loop {
        let before = input.len();
        match inspector.inspect(&mut input) {
            Ok(Some(found)) => again(&found, &unit),
            Ok(None) => {
                assert_eq!(input.len(), before, "nothing is taken of a part");
                return;
            }
            Err(kind) => {
                assert!(kind.code().starts_with("micromsg."));
                return;
            }
        }
        if inspector.is_whole() || input.is_empty() {
            return;
        }
    }
}

fn unit(choice: u8) -> Unit {
    match choice % 8 {
        0 | 1 => Unit::Frame,
        2 => Unit::Handshake,
        3 => Unit::ExtensionList,
        4 => Unit::PropertyList,
        5 => Unit::CommandLine,
        6 => Unit::Filter(None),
        _ => Unit::Filter(Some(PROPERTIES.to_owned())),
    }
}

/// The properties of a message that filters are tried on.
const PROPERTIES: &str = "a:N1;b:D2.5;c:Tcd%20e;a:N2;bad:T%4;n:N-3.25;";

fn limits() -> Limits {
    Limits {
        max_payload_bytes: 300,
        ..Limits::default()
    }
}

/// Checks the form in which something is written that was read.
fn again(found: &Inspected, unit: &Unit) {
    let labelled = found.spans.iter().map(|span| span.len);
    let labelled = labelled.fold(0, usize::saturating_add);
    assert_eq!(labelled, found.bytes.len(), "every byte has a purpose");
    let Some(bytes) = written(found) else {
        return;
    };
    // Texts may need more escapes than they came with.
    if !matches!(
        found.name,
        "error" | "extension_list" | "property_list" | "command_line" | "filter"
    ) {
        assert!(bytes.len() <= found.bytes.len(), "the shortest form");
    }
    let mut input = BytesMut::from(&bytes[..]);
    let most = Limits {
        // Escapes, and characters in the place of bytes that are no text.
        max_payload_bytes: 3 * 300,
        ..limits()
    };
    let read: Result<_, Kind> = Inspector::new(most, unit.clone()).inspect(&mut input);
    let read = read
        .ok()
        .flatten()
        .expect("a thing that was written is read");
    assert_eq!((read.name, &read.members), (found.name, &found.members));
    assert!(input.is_empty());
    assert_eq!(written(&read), Some(bytes), "there is one form");
}

/// The form that this crate writes, unless it writes no such names.
fn written(found: &Inspected) -> Option<Vec<u8>> {
    let mut members = found.members.clone();
    // It is a result, and no part of a filter.
    members.retain(|(name, _)| *name != "matches");
    let members = Value::Map(members);
    let mut bytes = Vec::new();
    let encoded = Description.encode(found.name, &Args::of(&members), &mut bytes);
    let has_fields = matches!(found.name, "property_list" | "command_line");
    let is_ours = !has_fields || names_of(&members).iter().all(|name| is_field(name));
    assert_eq!(encoded.is_ok(), is_ours, "{encoded:?}");
    is_ours.then_some(bytes)
}

/// The names of properties, conditions and commands in a value.
fn names_of(value: &Value) -> Vec<&str> {
    let mut names = Vec::new();
    match value {
        Value::Map(members) => {
            for (name, value) in members {
                match value {
                    Value::Text(text) if *name == "name" => names.push(text.as_str()),
                    other => names.extend(names_of(other)),
                }
            }
        }
        Value::List(items) => items.iter().for_each(|item| names.extend(names_of(item))),
        _ => {}
    }
    names
}
