//! The parts of a broker that have no I/O, beside its [queues](crate::queue) and its table of
//! [subscriptions](crate::subscriptions): which destinations are queues, which messages of a publisher are finished, the
//! memory of messages on their way, the messages that a receiver has, limits, what is kept of a spool, and batches by subscriber.

mod acks;
mod cursor;
mod fan_out;
mod handed;
mod held;
mod kept;
mod limits;
mod names;
mod routed;

pub use acks::{Acks, Finished};
pub use cursor::{Cursor, Unfinished};
pub use fan_out::{FanOut, Run};
pub use handed::HandedOut;
pub use held::Held;
pub use kept::Kept;
pub use limits::{Refusal, Subscribed, SubscriptionLimits};
pub use names::{QueueNames, consumer, queue};
pub use routed::Routed;
