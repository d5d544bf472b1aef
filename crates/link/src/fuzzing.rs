//! The fuzz targets of this crate and the replay of their corpora: each entry takes any bytes and fails an
//! assertion if a promise of the crate does not hold for them.

mod answers;
mod ledger;
mod slots;

use crate::proxy::Parser;

/// Links of several senders share one budget, in any order of calls: every byte is charged once,
/// memory stays within the formula of `docs/operations/sizing.md` (undecided bytes apart, which
/// have a limit of their own), senders stay within their share, and waiting links continue in their
/// turn.
///
/// # Panics
/// A promise does not hold.
pub fn ledger(data: &[u8]) {
    ledger::run(data);
}

/// Connections of several addresses and local users share the slots of one acceptor, directly and behind a proxy, in
/// any order: each limit holds, a displaced connection is the least useful one and counts once, and no address or
/// user is kept out by a greedier one.
///
/// # Panics
/// A promise does not hold.
pub fn slots(data: &[u8]) {
    slots::run(data);
}

/// Links of several senders share one answer budget, in any order of calls: every byte above the
/// free parts is charged once, one link at a time exceeds the budget, waiting links continue in
/// their turn, and a peer that delays others is checked and found to be slow.
///
/// # Panics
/// A promise does not hold.
pub fn answers(data: &[u8]) {
    answers::run(data);
}

/// Any split of the bytes reads the same header, and takes no byte after its end.
///
/// # Panics
/// A promise does not hold.
pub fn proxy(data: &[u8]) {
    let (cut, bytes) = data.split_first().unwrap_or((&0, &[]));
    let whole = read(bytes, bytes.len());
    assert_eq!(
        whole,
        read(bytes, usize::from(*cut).saturating_add(1)),
        "a split is visible"
    );
    assert_eq!(whole, read(bytes, 1), "a split into bytes is visible");
    if let Some(Ok((taken, _))) = &whole {
        // The header alone reads the same.
        assert_eq!(whole, read(bytes.get(..*taken).unwrap_or(bytes), *taken));
    }
}

/// The length of the header and its source, or the error; `None` if it is incomplete.
fn read(bytes: &[u8], chunk: usize) -> Option<Result<(usize, String), String>> {
    let mut header = Parser::default();
    let mut taken: usize = 0;
    for part in bytes.chunks(chunk.max(1)) {
        match header.push(part) {
            Err(error) => return Some(Err(error.to_string())),
            Ok((count, source)) => {
                assert!(count <= part.len(), "more is taken than there is");
                assert!(header.held() <= 232, "more is held than a header needs");
                taken = taken.saturating_add(count);
                match source {
                    Some(source) => return Some(Ok((taken, format!("{source:?}")))),
                    None => assert_eq!(count, part.len(), "bytes of an unfinished header are left"),
                }
            }
        }
    }
    None
}
