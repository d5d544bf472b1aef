//! What the fuzz target of the PROXY header and the replay of its corpus run: any bytes, and an assertion
//! that fails if a promise of the parser does not hold for them.

use crate::front::Header;

/// Any split of the bytes reads the same header, which takes no byte behind its end.
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

/// How long the header is and whose it says the connection is, or why it is none; `None`: it goes on.
fn read(bytes: &[u8], chunk: usize) -> Option<Result<(usize, String), String>> {
    let mut header = Header::default();
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
