//! The limits on subscriptions.

use crate::Subscribe;
use crate::text::check_destination;

/// Bytes of a subscription beside its texts, about.
const SUBSCRIPTION_BYTES: usize = 256;

/// The most that the subscriptions of one connection may take.
#[derive(Debug, Clone, Copy)]
pub struct SubscriptionLimits {
    /// Their number.
    pub count: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Conditions of one filter.
    pub conditions: usize,
}

/// The subscriptions that there are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Subscribed {
    /// Those of the connection.
    pub count: usize,
    /// Their bytes.
    pub bytes: usize,
    /// The bytes of the one that is replaced.
    pub replaced: Option<usize>,
    /// Bytes of all connections, and the most that they may take.
    pub all: (u64, u64),
}

/// The reason why a connection is ended: the code of its log line, and the text of its ERROR frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub code: &'static str,
    /// The text.
    pub text: String,
}

impl Refusal {
    /// A reason with this code and text.
    pub fn new(code: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }
}

impl SubscriptionLimits {
    /// Judges a subscription; returns the bytes that it takes.
    ///
    /// # Errors
    /// The limit that it exceeds, or that no message can match it.
    pub fn check(&self, wanted: &Subscribe, now: Subscribed) -> Result<usize, Refusal> {
        if check_destination(&wanted.topic).is_err() {
            let len = wanted.topic.len();
            let text = format!(
                "no message can have this topic of {len} bytes as its destination: at most 255 bytes of ASCII"
            );
            return Err(Refusal::new("micromsg.topic_name", text));
        }
        let most = self.count;
        if now.replaced.is_none() && now.count >= most {
            let text =
                format!("more than {most} subscriptions on one connection (max_subscriptions)");
            return Err(Refusal::new("micromsg.too_many_subscriptions", text));
        }
        let filter = wanted.filter.as_ref();
        let conditions = filter.map_or(0, |filter| filter.conditions().len());
        let most = self.conditions;
        if conditions > most {
            let text = format!(
                "a filter has {conditions} conditions, and there may be {most} (max_filter_conditions)"
            );
            return Err(Refusal::new("micromsg.too_many_conditions", text));
        }
        let topic = wanted.topic.len().saturating_mul(2);
        let filter = filter.map_or(0, |filter| filter.held_bytes());
        let bytes = SUBSCRIPTION_BYTES
            .saturating_add(topic)
            .saturating_add(filter);
        let others = now.bytes.saturating_sub(now.replaced.unwrap_or(0));
        let (own, most) = (others.saturating_add(bytes), self.bytes);
        if own > most {
            let text = format!(
                "the subscriptions of this connection take {own} bytes, and there may be {most} (max_subscription_bytes)"
            );
            return Err(Refusal::new("micromsg.subscriptions_too_large", text));
        }
        let (all, most) = now.all;
        let all = all.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if all > most {
            let text = format!(
                "all subscriptions together would take {all} bytes, and there may be {most}, a quarter of memory (memory)"
            );
            return Err(Refusal::new("micromsg.subscriptions_too_large", text));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Filter;

    const LIMITS: SubscriptionLimits = SubscriptionLimits {
        count: 2,
        bytes: 1_000,
        conditions: 1,
    };

    fn subscribe(topic: &str, filter: Option<&[u8]>) -> Subscribe {
        Subscribe {
            topic: topic.to_owned(),
            filter: filter.map(|text| Filter::read(text).unwrap().into()),
            filter_text: None,
        }
    }

    fn refused(wanted: &Subscribe, now: Subscribed) -> &'static str {
        LIMITS.check(wanted, now).unwrap_err().code
    }

    #[test]
    fn each_limit_is_named() {
        let now = Subscribed {
            count: 1,
            bytes: 600,
            replaced: None,
            all: (600, 10_000),
        };
        let one = subscribe("topic", None);
        assert_eq!(LIMITS.check(&one, now), Ok(266));
        let full = Subscribed { count: 2, ..now };
        assert_eq!(refused(&one, full), "micromsg.too_many_subscriptions");
        let again = Subscribed {
            replaced: Some(266),
            ..full
        };
        assert_eq!(LIMITS.check(&one, again), Ok(266), "it replaces one");
        for never in ["t\u{e9}", &"t".repeat(256)] {
            assert_eq!(refused(&subscribe(never, None), now), "micromsg.topic_name");
        }
        let two = subscribe("topic", Some(b"a=N1;b=N2"));
        assert_eq!(refused(&two, now), "micromsg.too_many_conditions");
        let long = subscribe(&"t".repeat(100), None);
        assert_eq!(refused(&long, now), "micromsg.subscriptions_too_large");
        let crowded = Subscribed {
            all: (9_800, 10_000),
            ..now
        };
        assert_eq!(refused(&one, crowded), "micromsg.subscriptions_too_large");
    }
}
