//! Messages as they are kept: each is one chunk, that of a whole message of the top-level, on whatever entity and in how
//! many parts it came.

use super::{Decoded, Encoded, Head, PayloadRole, decode, encode};
use crate::Target;

const MESSAGE: PayloadRole = PayloadRole::Message(Target::Top);

/// The head of a message of so many bytes.
pub fn stored_head(bytes: usize) -> Encoded {
    let length = u64::try_from(bytes).unwrap_or(u64::MAX);
    encode(Head::Payload {
        role: MESSAGE,
        length,
    })
}

/// The first message of a body, and the bytes behind it; the number of the message, and of all that the body announces,
/// are for the error.
///
/// # Errors
/// The bytes are no message, or end within it; the text is a sentence.
pub fn split_stored(body: &[u8], row: u32, announced: u32) -> Result<(&[u8], &[u8]), String> {
    let short = || format!("the block announces {announced} messages and holds {row}");
    let (length, head) = match decode(body).map_err(|kind| kind.to_string())? {
        Decoded::Whole {
            head:
                Head::Payload {
                    role: MESSAGE,
                    length,
                },
            len,
        } => (length, len),
        Decoded::Whole { .. } => return Err(format!("event {row} is no message")),
        Decoded::Partial { .. } => return Err(short()),
    };
    let (_, rest) = body.split_at_checked(head).ok_or_else(short)?;
    let length = usize::try_from(length).map_err(|_| short())?;
    rest.split_at_checked(length).ok_or_else(short)
}
