//! The life of a channel that the peer sends on, from its first message to the `closed` that answers the peer's close.
//!
//! The table in `docs/protocols/relink.md` lists every transition; a test here compares it with [`Life::after`].

/// The state of an incoming channel.
///
/// The three `Cut` states follow a new transport. The peer's close belongs to the transport that carried it, so the
/// answer waits until the peer repeats the close (R-REL-21).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// The peer may send messages.
    Open,
    /// The peer has closed the channel; messages still have to be consumed, decided or answered.
    Closing,
    /// Nothing is left to do; the journal has to keep the end before the peer hears of it.
    Ending,
    /// The peer is owed `closed`.
    Ended,
    /// [`Closing`](Self::Closing), and the peer has to repeat its close.
    ClosingCut,
    /// [`Ending`](Self::Ending), and the peer has to repeat its close.
    EndingCut,
    /// The journal keeps the end, and the peer has to repeat its close.
    EndedCut,
}

/// An input of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// The peer's close arrives.
    Close,
    /// Every message is consumed, decided and answered.
    Drained,
    /// The journal keeps the end of the channel.
    Kept,
    /// The link has a new transport.
    Attached,
}

impl Life {
    /// Returns the state after an input. An input that the table does not list changes nothing.
    pub(crate) const fn after(self, input: Input) -> Self {
        match (self, input) {
            (Self::Open | Self::ClosingCut, Input::Close) => Self::Closing,
            (Self::EndingCut, Input::Close) | (Self::Closing, Input::Drained) => Self::Ending,
            (Self::EndedCut, Input::Close) | (Self::Ending, Input::Kept) => Self::Ended,
            (Self::Closing, Input::Attached) => Self::ClosingCut,
            (Self::Ending, Input::Attached) => Self::EndingCut,
            (Self::Ended, Input::Attached) | (Self::EndingCut, Input::Kept) => Self::EndedCut,
            (state, _) => state,
        }
    }

    /// Whether the end of the channel is decided, and in the journal or on its way there.
    pub(crate) const fn is_decided(self) -> bool {
        matches!(
            self,
            Self::Ending | Self::Ended | Self::EndingCut | Self::EndedCut
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::table::{assert_documented, transitions};

    #[test]
    fn the_table_of_the_docs_lists_every_transition_of_an_incoming_channel() {
        use Life::{Closing, ClosingCut, Ended, EndedCut, Ending, EndingCut, Open};
        let states = [
            Open, Closing, Ending, Ended, ClosingCut, EndingCut, EndedCut,
        ];
        let inputs = [
            (Input::Close, "the peer's close arrives"),
            (Input::Drained, "all is consumed, decided and answered"),
            (Input::Kept, "the journal keeps the end"),
            (Input::Attached, "a new transport"),
        ];
        let table = transitions(&states, &inputs, Life::after);
        assert_documented("incoming channel", &table);
    }
}
