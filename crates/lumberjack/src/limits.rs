//! What a peer may ask of us. All limits are inclusive; none is ever used to allocate.

/// The limits of both roles. The defaults are generous on purpose: Lumberjack has no way to refuse a
/// window, so a limit that a correct sender can hit makes it resend for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Events in a window (`--max-window-events`), 65,536: Beats sends 2,048.
    pub window: u32,
    /// Bytes of a JSON payload (`--max-json-bytes`), 16 MiB.
    pub json: usize,
    /// Bytes of a data frame with its header (`--max-data-bytes`), 16 MiB.
    pub data: usize,
    /// Bytes of the zlib stream of an envelope (`--max-compressed-bytes`), 32 MiB.
    pub compressed: usize,
    /// Bytes that one envelope inflates to (`--max-inflated-bytes`), 100 MiB.
    pub inflated: usize,
    /// Pairs in a data frame (`--max-pairs`), 1,024.
    pub pairs: u32,
    /// Bytes of a key or a value (`--max-field-bytes`), 1 MiB.
    pub field: usize,
    /// Bytes of the frames of one window, inflated (`--max-window-bytes`), 256 MiB.
    pub window_bytes: usize,
    /// Windows read and not acknowledged (`--max-unacked-windows`), 64; then reading stops.
    pub unacked_windows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            window: 65_536,
            json: 16 * MIB,
            data: 16 * MIB,
            compressed: 32 * MIB,
            inflated: 100 * MIB,
            pairs: 1_024,
            field: MIB,
            window_bytes: 256 * MIB,
            unacked_windows: 64,
        }
    }
}
