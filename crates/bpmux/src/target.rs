//! The targets of chunks and calls. An id is a number of 32 bits (R-BPM-5), and each end assigns ids of its own
//! (REQ-BPMUX-2).

/// A sink, stream or duplex by the end that opened it, or the top-level: seen from one end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// The connection's own sink and stream, which need no opening.
    Top,
    /// Opened by this end.
    Own(u32),
    /// Opened by the other end.
    Peer(u32),
}

impl Target {
    /// The same, seen from the other end.
    #[must_use]
    pub const fn flipped(self) -> Self {
        match self {
            Self::Top => Self::Top,
            Self::Own(id) => Self::Peer(id),
            Self::Peer(id) => Self::Own(id),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Top => f.write_str("the top-level"),
            Self::Own(id) => write!(f, "our entity {id}"),
            Self::Peer(id) => write!(f, "the peer's entity {id}"),
        }
    }
}

/// The kinds of entities, named from the opener's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntityKind {
    /// Its opener sends messages.
    Sink,
    /// Its opener receives messages.
    Stream,
    /// Both send and receive messages.
    Duplex,
}

impl EntityKind {
    /// The specification's word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sink => "sink",
            Self::Stream => "stream",
            Self::Duplex => "duplex",
        }
    }

    /// Whether the end that opened it (`own`), or the other one, sends messages.
    pub const fn is_written(self, own: bool) -> bool {
        match self {
            Self::Sink => own,
            Self::Stream => !own,
            Self::Duplex => true,
        }
    }

    /// Whether the end that opened it (`own`), or the other one, receives messages.
    pub const fn is_read(self, own: bool) -> bool {
        self.is_written(!own)
    }
}
