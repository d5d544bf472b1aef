//! The code that the fuzz targets, the replay of their corpora and the tests run: each entry takes any bytes and fails
//! an assertion if a promise of the crate does not hold for them.

mod ops;
mod receive;

use std::time::Instant;

use ackline_core::described::Described as _;
use ackline_core::{Inspect as _, Value};
use bytes::BytesMut;

use crate::Description;
use crate::message::{ExtensionMessage, FieldKind, Inspector};
use crate::{Kind, Limits};

/// Any split of any bytes gives the same, for an end in many states, and no more is held than is charged.
pub fn receive(now: Instant, data: &[u8]) {
    receive::receive(now, data);
}

/// Any order of calls and deliveries at both ends: neither finds fault with the other, no publisher sends more than was
/// requested, and everything comes to its end, whole and in order.
pub fn ops(start: Instant, data: &[u8]) {
    ops::ops(start, data);
}

/// Every message that can be read is written in the shortest form, which reads as the same message.
pub fn roundtrip(data: &[u8]) {
    let sizes = [(1, 0), (2, 1), (3, 8)];
    let mut input = BytesMut::from(data);
    let mut inspector = inspector(&sizes);
    loop {
        let before = input.len();
        match inspector.inspect(&mut input) {
            Ok(Some(message)) => again(&message, &sizes),
            Ok(None) => {
                assert_eq!(input.len(), before, "nothing is taken of a part");
                return;
            }
            Err(_) => return,
        }
    }
}

fn inspector(sizes: &[(u64, u64)]) -> Inspector {
    let limits = Limits {
        max_element_bytes: 100,
        max_string_bytes: 50,
        max_extensions: 5,
        ..Limits::default()
    };
    let message = ExtensionMessage {
        message_type: 64,
        extension: 1,
        fields: vec![FieldKind::Varint, FieldKind::String, FieldKind::Bytes],
    };
    let made = Inspector::new(limits, vec![message]);
    sizes.iter().fold(made, |made, (subscriber, size)| {
        made.with_element_size(*subscriber, *size)
    })
}

/// Checks the shortest form of a message.
fn again(message: &ackline_core::Inspected, sizes: &[(u64, u64)]) {
    use ackline_core::described::Args;
    let about = message
        .members
        .iter()
        .find(|(name, _)| *name == "subscriber");
    let mut known = sizes.to_vec();
    if let (Some((_, Value::Number(id))), "on_next" | "on_next_packed") = (about, message.name) {
        // The size may have been learnt from the same bytes.
        let size = fixed_size(message);
        known.retain(|(other, _)| other != id);
        known.extend(size.map(|size| (*id, size)));
    } else if let Some((_, Value::Number(id))) = about {
        known.push((*id, 0));
    }
    let rows = known.iter().map(|(id, size)| {
        Value::Map(vec![
            ("subscriber", (*id).into()),
            ("element_size", (*size).into()),
        ])
    });
    let context = Value::Map(vec![("element_sizes", Value::List(rows.collect()))]);
    let members = Value::Map(message.members.clone());
    let mut bytes = Vec::new();
    let encoded = Description.encode_in(
        &Args::of(&context),
        message.name,
        &Args::of(&members),
        &mut bytes,
    );
    assert!(encoded.is_ok(), "{encoded:?}");
    assert!(bytes.len() <= message.bytes.len(), "the shortest form");
    let mut input = BytesMut::from(&bytes[..]);
    let read: Result<_, Kind> = inspector(&known).inspect(&mut input);
    let read = read
        .ok()
        .flatten()
        .expect("a message that was written is read");
    assert_eq!((read.name, &read.members), (message.name, &message.members));
    assert!(input.is_empty());
}

/// The size of the elements with which the message was read.
fn fixed_size(message: &ackline_core::Inspected) -> Option<u64> {
    let label = message.spans.first()?.len;
    let member = message.members.iter().find_map(|(_, value)| match value {
        Value::Bytes(bytes) => Some(bytes.len()),
        // Without an element any size does.
        Value::List(items) => Some(items.first().map_or(1, |item| item.to_bytes().len())),
        _ => None,
    })?;
    let size = u64::try_from(member).ok()?;
    if message.name == "on_next_packed" {
        return Some(size);
    }
    // Two numbers stand before an element of the stream's size, three before another.
    let varints = message.bytes.get(..label)?;
    let numbers = varints.iter().filter(|byte| **byte & 0x80 == 0).count();
    Some(if numbers == 2 { size } else { 0 })
}
