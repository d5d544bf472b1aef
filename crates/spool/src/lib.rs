//! Blocks on disk, made durable before they are acknowledged, and read back as Arrow record
//! batches.
//!
//! A [`Writer`] (one for each spool) takes [`Block`]s and notifies a [`Settle`] when they are
//! durable. A [`Spool`] reads them in any process, beside the writer or after it died, and expands
//! them into events by the given [`Layouts`]. This crate knows no protocol and has no async
//! runtime.
//!
//! # Format 2
//!
//! Every file carries `format`, `min_reader` and the spool's UUID or belongs to one that does;
//! numbers in the binary files are little-endian; each CRC is CRC-32C. A file of JSON with a
//! checksum ends with the member `crc`: that of every byte before it. Directories have mode 0700,
//! files 0600; with the group option 0770 and 0660. Wider ones are refused. Every file is opened
//! relative to the folder and never through a link.
//!
//! ```text
//! DIR/spool.json                 {"created","format":2,"min_reader":2,"uuid","crc"}, in an adopted spool also
//!                                "formerly": the UUIDs that its files may still carry
//! DIR/lock                       "pid start-time", under a lock of an open file description while a writer lives
//! DIR/marks.lock                 locked by a process that moves a mark back or removes events
//! DIR/durable                    the durable mark: two slots of 64 bytes at 4,096 and 8,192, written in turn:
//!                                "ACKLDUR2", position u64, epoch u64, generation u64, watched u64, 20 bytes
//!                                reserved, CRC u32. The sound one of the highest epoch and generation counts
//! DIR/start                      {"epoch","format","position","start","uuid","watched_us","crc"}: the first
//!                                position that is kept, and one that was published
//! DIR/losses                     {"format","losses":[{"from","noted","to","why"}],"uuid","crc"}: positions that
//!                                cannot be read; why: lost, corrupt, removed
//! DIR/retired                    the position below which segments were removed by age despite marks; absent otherwise
//! DIR/key                        64 hexadecimal digits: the key of the digests that repeats are recognised by
//! DIR/ends                       the names of links that ended in order, one in each line, the newest ones last
//! DIR/reserve                    room for small files on a full file system, given back a piece at a time
//! DIR/lost+found                 files and bytes that recovery and mending took out
//! DIR/consumers/NAME.json        {"committed","epoch","format","generation","holder","seen","updated","uuid",
//!                                "crc"}, NAME = [A-Za-z0-9][A-Za-z0-9._-]{0,63}
//! DIR/consumers/NAME.lock        the holder and its generation, with a checksum, under a lock while a reader
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
//! The schema message and each record batch fill whole sectors of 4,096 bytes, so that a torn write
//! damages nothing that was acknowledged before. The filling follows the message, where Arrow
//! allows padding: zeros, then after the schema the header of the index, and after each record
//! batch its *seal*: the group's entry of the index, its length u32, and `SEAL`.
//!
//! **Index**: a header of 64 bytes (`ACKLIDX1`, format u16, `min_reader` u16, entry size u32 = 96,
//! UUID 16 bytes, first position u64, first time i64 in µs, reserved, CRC u32), then entries of
//! that size: kind u32 (1 group, 2 footer), blocks u32, offset u64, length u32, CRC of those bytes
//! without the seal u32, first position u64, events u64, time i64 in µs, inflated bytes u64, epoch
//! u64, watched u64 in µs, reserved, CRC of the entry u32. A group's time is when it became
//! durable. The footer sums the segment up; its time is when the last block was received. A later
//! release may make entries longer; the CRC stays at the end, and unknown fields are skipped.
//!
//! **Epoch**: 32 bits that count the writers of a spool, above 32 random ones. A writer raises it
//! in the durable mark before it reads anything else, and checks that it is still the newest before
//! each group is written and before it is published. So of two writers the older one acknowledges
//! nothing that the newer one has not found.
//!
//! **Watched**: for how long writers have had the spool open, by a clock that cannot be set. Events
//! are removed by age only as far as that time has passed since.
//!
//! # Format 1
//!
//! Segments of format 1 stay as they are and are read for ever: entries of 64 bytes without epoch
//! and watched time, groups without seal that fill no sectors, CRCs of all their bytes. The durable
//! mark had two slots of 24 bytes at the beginning of its file, marks had no checksum, and a lost
//! range was only a gap between two segments. The first writer of this release names format 2 in
//! `spool.json`, raises the epoch, notes the gaps, and clears the old slots.
//!
//! # The time at which events are durable
//!
//! Before links are notified, the names of segment, index, mark, identity and lock are checked, and
//! the lengths of segment and index: events in files that were removed, moved away or cut would be
//! lost. If one of them differs, the writer fails (`spool.moved`, `spool.changed`).
//!
//! A group is durable when segment and index are synced; then the durable mark is published, then
//! the links are notified. Readers see nothing above the mark. After a failed write or sync index
//! and segment are cut back to their durable bytes and never written again: the next segment begins
//! at the first position that is not durable, and an entry of a segment at or above the first
//! position of the next segment does not count.
//!
//! Recovery reads the last segment, checks every group, and cuts everything after the last sound
//! one. If that is below the durable mark, or below the end of a whole entry, the disk has lost
//! acknowledged writes: [`Recovered::lost`] names the positions, which are never given out again,
//! and a reader gets `spool.gap` for them. An unsound group before a sound one is a hole: its
//! positions are noted, and the groups around it stay. An index that is missing or damaged is
//! rebuilt from the seals. The last group of a segment that was not ended may exist in the page
//! cache alone: it is rewritten, synced and renamed into its place before anything else happens. A
//! concurrent reader lists the segments again before a group counts as gone. A file that cannot be
//! placed is `spool.unplaced`, and [`mend`] moves it to `lost+found`.
//!
//! Segments are removed by the file `start`: it is replaced while no mark can go back, and
//! everything below it counts as gone; a separate thread removes the files afterwards.

#![forbid(unsafe_code)]

mod active;
mod adopt;
mod backlog;
mod block;
mod catalog;
mod clock;
mod commit;
mod consumers;
mod digest;
mod disk;
mod ends;
mod error;
mod events;
mod examine;
mod expand;
mod filesystem;
mod find;
mod folder;
mod format;
mod group;
mod index;
mod key;
mod layout;
mod lease;
mod lock;
mod losses;
mod mark;
mod mend;
mod migrate;
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
mod rewrite;
mod rights;
mod room;
mod said;
mod sealed;
mod segment;
mod spool;
mod start;
mod state;
#[cfg(test)]
mod tests;
mod walk;
mod watch;
mod writer;

pub use adopt::{Adopted, adopt};
pub use block::{Block, BlockInfo, Origin, Settle, StoredBlock};
pub use clock::{now_us, rfc3339};
pub use consumers::{Consumer, ConsumerState, Holder};
pub use digest::{Digester, SENDER, sender_of};
pub use ends::Ends;
pub use error::SpoolError;
pub use events::{COLUMNS, DIGEST, ENDPOINT, LISTENER, ON_REQUEST, RECEIVER_URL, Rows, column};
pub use find::Lag;
pub use format::uuid_v4;
pub use layout::{Layout, LayoutError, Layouts};
pub use lease::{Lease, Sought};
pub use lock::{after_fork_in_child, after_fork_in_parent, before_fork};
pub use losses::{Loss, LossWhy};
pub use mend::{Mended, Step, mend};
pub use options::WriterOptions;
pub use probe::{Probe, fsync_probe};
pub use promise::Promise;
pub use queue::{CommitStats, Handed, WriterState, WriterStats};
pub use read::{LEAST_MEMORY, OnLoss, ReadOptions, Reader};
pub use recall::{Digests, Standing};
pub use recovery::Lost;
pub use rights::Access;
pub use spool::{Report, Slice, Spool};
pub use state::StateDir;
pub use writer::{Recovered, Writer};
