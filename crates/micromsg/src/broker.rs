//! The parts of a broker that have no I/O, beside its [queues](crate::queue) and its table of
//! [subscriptions](crate::subscriptions): which destinations are queues, which messages of a publisher are finished, the
//! memory of messages on their way, and batches by subscriber.

mod acks;
mod fan_out;
mod held;
mod names;

pub use acks::Acks;
pub use fan_out::FanOut;
pub use held::Held;
pub use names::{QueueNames, consumer, queue};
