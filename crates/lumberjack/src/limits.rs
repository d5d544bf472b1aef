//! Limits on a peer's frames. All are inclusive; none is ever used to allocate.

use ackline_core::options::{bytes, count};

const MIB: usize = 1 << 20;

ackline_core::options! {
    /// The limits of both roles. The defaults are generous on purpose: Lumberjack has no way to refuse a
    /// window, so a limit that a correct sender can hit makes it resend for ever.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Limits {
        options {
            /// Events in a window; Beats sends 2,048.
            max_window_events: u32 = 65_536, count(1..=0xffff_ffff), LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Bytes of a JSON event.
            max_json_bytes: usize = 16 * MIB, bytes(1..=u64::MAX), LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Bytes of a key-value event, with the header of its frame.
            max_data_bytes: usize = 16 * MIB, bytes(1..=u64::MAX), LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Bytes of a compressed frame.
            max_compressed_bytes: usize = 32 * MIB, bytes(1..=u64::MAX), LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Bytes that a compressed frame inflates to.
            max_inflated_bytes: usize = 100 * MIB, bytes(1..=u64::MAX), LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Pairs in a key-value event.
            max_pairs: u32 = 1_024, count(1..=0xffff_ffff), LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Bytes of a key or value.
            max_field_bytes: usize = MIB, bytes(1..=u64::MAX), LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Bytes of the frames of one window, inflated.
            max_window_bytes: usize = 256 * MIB, bytes(1..=u64::MAX), LISTEN | RECEIVE | URL | MACHINE;
            /// Unacknowledged windows of a connection: above it reading waits.
            max_unacked_windows: usize = 64, count(1..=u64::MAX), LISTEN | RECEIVE | URL | MACHINE;
        }
    }
}
