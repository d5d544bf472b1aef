//! The invariants of every state, and the states that must be reachable, because the invariants mean nothing
//! otherwise.

use stateright::Property;

use crate::packet::{CHANNELS, Fault};
use crate::world::{Plan, State};

/// The properties by name.
pub fn all() -> Vec<Property<Plan>> {
    let mut all = of_messages();
    all.extend(of_states());
    all
}

fn of_messages() -> Vec<Property<Plan>> {
    vec![
        Property::always(ONCE_IN_ORDER, |_, state: &State| {
            !matches!(state.fault, Some(Fault::Duplicate | Fault::Gap))
        }),
        Property::always(NOT_SENT_AGAIN, |_, state: &State| {
            state.fault != Some(Fault::SentAgain)
        }),
        Property::always(UNACKNOWLEDGED, |_, state: &State| {
            !matches!(
                state.fault,
                Some(
                    Fault::FalseAcknowledgement
                        | Fault::Miscounted
                        | Fault::HalfClosed
                        | Fault::ClosedEarly
                )
            )
        }),
        Property::always(DECIDED_ONCE, |_, state: &State| {
            !matches!(
                state.fault,
                Some(Fault::DecidedTwice | Fault::DecidedOtherwise)
            )
        }),
        Property::always(ANSWERED_ONCE, |_, state: &State| {
            !matches!(
                state.fault,
                Some(Fault::AnsweredTwice | Fault::AnsweredOtherwise)
            )
        }),
        Property::always(NO_ROLLBACK_ANSWERED, |_, state: &State| {
            state.fault != Some(Fault::AnsweredRollback)
        }),
    ]
}

fn of_states() -> Vec<Property<Plan>> {
    vec![
        Property::always(NO_PROTOCOL_ERROR, |_, state: &State| {
            !matches!(
                state.fault,
                Some(
                    Fault::OutOfRange
                        | Fault::UnknownChannel
                        | Fault::ChannelClosing
                        | Fault::ResumeInconsistent
                        | Fault::WindowExceeded
                        | Fault::AfterShutdown
                )
            )
        }),
        Property::always(WINDOWS, windows_are_consistent),
        Property::always(NO_DEADLOCK, |plan: &Plan, state: &State| {
            let mut actions = Vec::new();
            plan.progress(state, &mut actions);
            !actions.is_empty() || state.fault.is_some() || plan.is_finished(state)
        }),
        Property::sometimes(FINISHES, |plan: &Plan, state: &State| {
            plan.is_finished(state)
        }),
        Property::sometimes(FINISHES_AFTER_ALL, |plan: &Plan, state: &State| {
            plan.is_finished(state) && state.cuts == 0 && state.restarts == 0
        }),
    ]
}

/// Each message of a channel's life is delivered at most once and in order.
pub const ONCE_IN_ORDER: &str = "once and in order";
/// Checks that a message of a lost link or a closed channel never arrives later.
pub const NOT_SENT_AGAIN: &str = "nothing is sent again behind the application's back";
/// Messages that were not consumed are unacknowledged, and an ordinary close leaves no message open.
pub const UNACKNOWLEDGED: &str = "unconsumed messages are unacknowledged";
/// The receiver hears of each decision once, as it was made.
pub const DECIDED_ONCE: &str = "decided once";
/// The sender hears of each outcome once, as it was given.
pub const ANSWERED_ONCE: &str = "answered once";
/// No rolled back message has an outcome.
pub const NO_ROLLBACK_ANSWERED: &str = "no outcome for a rolled back message";
/// Two ends that keep the rules never see a protocol error.
pub const NO_PROTOCOL_ERROR: &str = "no protocol error";
/// Both ends' counts of a life fit together, and no window is exceeded.
pub const WINDOWS: &str = "windows are consistent";
/// If no step is possible, every message is consumed, decided and answered.
pub const NO_DEADLOCK: &str = "no deadlock";
/// The plan can be finished.
pub const FINISHES: &str = "finishes";
/// The plan can be finished after every cut and restart.
pub const FINISHES_AFTER_ALL: &str = "finishes after every cut and restart";

fn windows_are_consistent(plan: &Plan, state: &State) -> bool {
    if state.fault.is_some() || !state.same_link {
        return true;
    }
    (0..2).all(|side| {
        (0..CHANNELS).all(|channel| {
            let Some(outgoing) = &state.ends[side].outgoing[channel] else {
                return true;
            };
            let ordered = outgoing.consumed <= outgoing.received
                && outgoing.received <= outgoing.written
                && outgoing.written <= outgoing.sent
                && outgoing.unacknowledged() <= plan.rules.window;
            let met = state.ends[1 - side].incoming[channel]
                .as_ref()
                .is_none_or(|incoming| {
                    outgoing.received <= incoming.received
                        && outgoing.consumed <= incoming.consumed
                        && incoming.consumed <= incoming.received
                        && incoming.received <= outgoing.written
                        && incoming.decisions.decided <= outgoing.decisions.decided
                        && outgoing.decisions.answered <= incoming.decisions.answered
                });
            ordered && met
        })
    })
}
