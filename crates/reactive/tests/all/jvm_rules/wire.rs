//! The messages of the wire, written apart from the crate's own encoder.

/// Varints, one behind the other.
fn numbers(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        let mut rest = *number;
        while rest >= 0x80 {
            bytes.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
            rest >>= 7;
        }
        bytes.push(u8::try_from(rest).unwrap());
    }
    bytes
}

/// Numbers, and then bytes behind their length.
fn with_bytes(before: &[u64], bytes: &str) -> Vec<u8> {
    let length = u64::try_from(bytes.len()).unwrap();
    [numbers(before), numbers(&[length]), bytes.into()].concat()
}

pub(super) fn subscribe(publisher: &str, id: u64, demand: u64) -> Vec<u8> {
    [with_bytes(&[3], publisher), numbers(&[id, demand])].concat()
}

pub(super) fn request(id: u64, demand: u64) -> Vec<u8> {
    numbers(&[4, id, demand])
}

pub(super) fn cancel(id: u64) -> Vec<u8> {
    numbers(&[5, id])
}

pub(super) fn subscribed(id: u64, size: u64) -> Vec<u8> {
    numbers(&[6, id, size])
}

pub(super) fn next(id: u64, element: &str) -> Vec<u8> {
    with_bytes(&[7, id], element)
}

/// An element of the stream's size, which has no length.
pub(super) fn next_fixed(id: u64, element: &str) -> Vec<u8> {
    [numbers(&[7, id]), element.into()].concat()
}

pub(super) fn complete(id: u64) -> Vec<u8> {
    numbers(&[8, id])
}

pub(super) fn error(id: u64, text: &str) -> Vec<u8> {
    with_bytes(&[9, id], text)
}

pub(super) fn packed(id: u64, count: u64, elements: &str) -> Vec<u8> {
    [numbers(&[10, id, count]), elements.into()].concat()
}

pub(super) fn part(id: u64, element: u64, data: &str) -> Vec<u8> {
    with_bytes(&[11, id, element], data)
}

pub(super) fn last_part(id: u64, element: u64, data: &str) -> Vec<u8> {
    with_bytes(&[12, id, element], data)
}

/// The type of a goodbye, with which a violation ends the connection.
pub(super) const GOODBYE: u8 = 13;
