//! The closing of a channel that this end sends on, up to its emission on the current transport.
//!
//! The table in `docs/protocols/relink.md` lists every transition; a test here compares it with [`Close::after`].

/// How far the closing of an outgoing channel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Close {
    /// The application has not closed the channel.
    Open,
    /// The application has closed it; the journal has to keep that.
    Called,
    /// The close may leave as soon as the channel allows it.
    Ready,
    /// The close is to leave; the journal has to keep that.
    Leaving,
    /// The close may be emitted, and the transport's plan does not hold it.
    Kept,
    /// The transport's plan holds the close.
    Planned,
    /// The close was emitted on this transport.
    Emitted,
    /// The close was emitted on an earlier transport, and this transport's plan does not hold it.
    EmittedBefore,
    /// The close was emitted on an earlier transport, and this transport's plan holds it.
    PlannedAgain,
}

/// An input of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// The application closes the channel.
    Call,
    /// The journal keeps the call, or a restart has found it there.
    CallKept,
    /// Nothing holds the close back.
    Leave,
    /// The journal keeps that the close leaves.
    LeaveKept,
    /// The close joins the transport's plan.
    Plan,
    /// The close is emitted, or a restart takes it for emitted.
    Emit,
    /// The link has a new transport.
    Attached,
}

impl Close {
    /// Returns the state after an input. An input that the table does not list changes nothing.
    pub(crate) const fn after(self, input: Input) -> Self {
        match (self, input) {
            (Self::Open, Input::Call) => Self::Called,
            (Self::Called, Input::CallKept) => Self::Ready,
            (Self::Ready, Input::Leave) => Self::Leaving,
            (Self::Leaving, Input::LeaveKept) | (Self::Planned, Input::Attached) => Self::Kept,
            (Self::Kept, Input::Plan) => Self::Planned,
            (Self::EmittedBefore, Input::Plan) => Self::PlannedAgain,
            (Self::Planned | Self::PlannedAgain, Input::Emit) => Self::Emitted,
            (Self::Emitted | Self::PlannedAgain, Input::Attached) => Self::EmittedBefore,
            (state, _) => state,
        }
    }

    /// Whether the close was emitted, on this transport or an earlier one.
    pub(crate) const fn was_emitted(self) -> bool {
        matches!(
            self,
            Self::Emitted | Self::EmittedBefore | Self::PlannedAgain
        )
    }

    /// Whether the peer may know of the close, now or soon.
    pub(crate) const fn leaves(self) -> bool {
        !matches!(self, Self::Open | Self::Called | Self::Ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::table::{assert_documented, transitions};

    #[test]
    fn the_table_of_the_docs_lists_every_transition_of_a_close() {
        use Close::{
            Called, Emitted, EmittedBefore, Kept, Leaving, Open, Planned, PlannedAgain, Ready,
        };
        let states = [
            Open,
            Called,
            Ready,
            Leaving,
            Kept,
            Planned,
            Emitted,
            EmittedBefore,
            PlannedAgain,
        ];
        let inputs = [
            (Input::Call, "`close_channel`"),
            (Input::CallKept, "the journal keeps the call"),
            (Input::Leave, "nothing holds the close back"),
            (Input::LeaveKept, "the journal keeps that it leaves"),
            (Input::Plan, "it joins the transport's plan"),
            (Input::Emit, "it is emitted"),
            (Input::Attached, "a new transport"),
        ];
        let table = transitions(&states, &inputs, Close::after);
        assert_documented("outgoing close", &table);
    }
}
