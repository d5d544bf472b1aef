//! The end of a link: both sides shut down, or the peer does not know the link any more.

/// How far the end of a link is.
#[derive(Debug, Default)]
pub(super) struct End {
    over: Option<Over>,
    own: Shutdown,
    /// Whether the peer has shut down.
    peer: bool,
}

/// How a link has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Closed,
    Lost,
}

/// How far the own shutdown is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Shutdown {
    #[default]
    No,
    /// The application has called it; the journal has to keep that.
    Called,
    /// It is emitted as soon as no own channel is left.
    Ready,
    /// It was emitted, on this transport or an earlier one.
    Emitted,
}

impl End {
    pub(super) const fn over(&self) -> Option<Over> {
        self.over
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// The link ends.
    pub(super) const fn finish(&mut self, over: Over) {
        self.over = Some(over);
    }

    /// The application shuts down; returns false if it has done so before.
    pub(super) fn call(&mut self) -> bool {
        let is_first = self.own == Shutdown::No;
        if is_first {
            self.own = Shutdown::Called;
        }
        is_first
    }

    /// The peer may be told of the own shutdown.
    pub(super) const fn publish(&mut self) {
        self.own = Shutdown::Ready;
    }

    /// The own shutdown is emitted.
    pub(super) const fn emit(&mut self) {
        self.own = Shutdown::Emitted;
    }

    /// The peer shuts down; returns false if it has done so before.
    pub(super) const fn peer_shuts_down(&mut self) -> bool {
        !std::mem::replace(&mut self.peer, true)
    }

    pub(super) const fn is_called(&self) -> bool {
        !matches!(self.own, Shutdown::No)
    }

    pub(super) const fn may_emit(&self) -> bool {
        matches!(self.own, Shutdown::Ready)
    }

    pub(super) const fn is_emitted(&self) -> bool {
        matches!(self.own, Shutdown::Emitted)
    }

    pub(super) const fn is_peers(&self) -> bool {
        self.peer
    }
}
