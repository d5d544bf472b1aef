//! Blocks on disk, made durable before they are acknowledged, and read back as Arrow record batches.
//!
//! A [`Writer`] (one for each spool) takes [`Block`]s and tells a [`Settle`] once they are durable. A
//! [`Spool`] reads them in any process, beside the writer or after it died, and expands them into
//! events by the [`Layouts`] it is given. This crate knows no protocol and has no async runtime.
//!
//! # Format 1
//!
//! Final. Every file carries `format`, `min_reader` and the spool's UUID or stands beside one that
//! does; numbers in the binary files are little-endian; each CRC is CRC-32C. Directories have mode
//! 0700, files 0600; with the group option 0770 and 0660. Wider ones are refused.
//!
//! ```text
//! DIR/spool.json                 {"created","format":1,"min_reader":1,"uuid"}, in an adopted spool also
//!                                "formerly": the UUIDs that its files may still carry
//! DIR/lock                       "pid start-time", under a POSIX record lock while a writer lives
//! DIR/durable                    the durable mark: two slots of 24 bytes, written in turn:
//!                                "ACKLDUR1", position u64, reserved u32, CRC u32. The higher sound one counts
//! DIR/retired                    up to which position segments went by age, whatever the marks said; only then
//! DIR/key                        64 hexadecimal digits: what keys the digests that repeats are recognised by
//! DIR/reserve                    room for marks on a full file system: allocated, and given back then
//! DIR/consumers/NAME.json        {"committed","format":1,"generation","holder","seen","updated","uuid"},
//!                                NAME = [A-Za-z0-9][A-Za-z0-9._-]{0,63}
//! DIR/consumers/NAME.lock        the holder and its generation, under a POSIX record lock while a reader
//!                                lives, which touches it
//! DIR/segments/FIRST.arrows      a segment; FIRST = its first position in 20 digits
//! DIR/segments/FIRST.idx         its index
//! ```
//!
//! **Segment**: an Arrow IPC stream. Its schema's metadata has `ackline.format`, `ackline.min_reader`,
//! `ackline.uuid`, `ackline.first_position`, `ackline.first_time_us`. One record batch is one group
//! commit, one row is one block: `first_position` int64, `count` int32, `received_at` timestamp\[us,
//! UTC\], `protocol`, `peer`, `link`, `stream` (null) utf8, `first_sequence` int64, `layout`, `codec`
//! utf8, `checksum` uint32 (CRC-32C of `body`), `windows` int32, `inflated_bytes` int64, `repeats`
//! binary (null: not judged; a bitmap, least significant bit first; missing bits are 0), `attributes`
//! map<utf8, utf8>, `body` binary. A segment that was ended in good order ends with Arrow's
//! end-of-stream marker.
//!
//! **Index**: a header of 64 bytes (`ACKLIDX1`, format u16, `min_reader` u16, entry size u32 = 64, UUID
//! 16 bytes, first position u64, first time i64 in µs, reserved, CRC u32), then entries of 64 bytes:
//! kind u32 (1 group, 2 footer), blocks u32, offset u64, length u32, CRC of those bytes u32, first
//! position u64, events u64, time i64 in µs, inflated bytes u64, reserved u32, CRC of the entry u32. A
//! group's time is when it became durable. The footer sums the segment up; its time is when the last
//! block was received.
//!
//! # What is kept when
//!
//! Before links are told, the names of segment, index, mark, identity and lock are looked at: events in files
//! that were removed or moved away would be lost. If one of them is not the file that was opened, the writer
//! has failed (`spool.moved`).
//!
//! A group is durable when segment and index are synced; then the durable mark is published, then the
//! links are told. Readers see nothing above the mark. After a failed write or sync the segment is
//! never written again: the next one begins at the first position that is not durable, and an entry of
//! a segment at or above the first position of the next segment does not count.
//!
//! Recovery looks at the last segment, checks every entry and every group, and cuts both files after
//! the last sound one. If that is below the durable mark, or below the end of a whole entry, the disk
//! has lost what it had said was written: [`Recovered::lost`] names the positions, which are never given
//! out again, and a reader gets `spool.gap` for them (a segment with a footer that ends before the next
//! one begins is such a gap). A sound group behind one that is not sound says that this is no torn tail:
//! the error `spool.corrupt`, and nothing is cut. A durable mark of which neither slot is sound is rebuilt
//! from the last segment, loudly.
//!
//! A segment goes in steps that may each be the last: the mark is written and synced, the segment removed,
//! the directory synced, then the index removed. So none is ever found without its index.

mod active;
mod adopt;
mod block;
mod commit;
mod consumers;
mod digest;
mod disk;
mod error;
mod events;
mod examine;
mod filesystem;
mod find;
mod format;
mod key;
mod layout;
mod lease;
mod lock;
mod options;
mod outline;
mod place;
mod probe;
mod promise;
mod queue;
mod read;
mod recall;
mod recovery;
mod reserve;
mod retention;
mod rights;
mod said;
mod segment;
mod spool;
mod state;
#[cfg(test)]
mod tests;
mod writer;

pub use adopt::{Adopted, adopt};
pub use block::{Block, BlockInfo, Settle, StoredBlock};
pub use consumers::{Consumer, ConsumerState, Holder};
pub use digest::{Digester, SENDER, sender_of};
pub use error::SpoolError;
pub use events::{COLUMNS, DIGEST, Rows, column};
pub use find::Lag;
pub use format::{now_us, rfc3339, uuid_v4};
pub use layout::{Layout, LayoutError, Layouts};
pub use lease::{Lease, Sought};
pub use options::WriterOptions;
pub use probe::{Probe, fsync_probe};
pub use promise::Promise;
pub use queue::{Handed, WriterState, WriterStats};
pub use read::{ReadOptions, Reader};
pub use recall::{Digests, Standing};
pub use recovery::Lost;
pub use rights::Access;
pub use spool::{Report, Slice, Spool};
pub use state::StateDir;
pub use writer::{Recovered, Writer};
