//! The destinations that are queues, and the names of their consumers in a spool.

use std::fmt::Write as _;

use ackline_core::options::OptionError;

use crate::text::check_destination;

/// Names of queues, and beginnings of them.
#[derive(Debug, Clone)]
pub struct QueueNames {
    names: Vec<String>,
    beginnings: Vec<String>,
}

impl QueueNames {
    /// Reads a list such as `queue/*;jobs`.
    ///
    /// # Errors
    /// A name is not ASCII or longer than 255 bytes, or has a `*` elsewhere than at its end.
    pub fn read(list: &str) -> Result<Self, OptionError> {
        let wrong = |text: &str| {
            OptionError::new(
                "queues",
                format!("has {text:?}: a name of at most 255 bytes of ASCII, or a beginning and *"),
            )
        };
        let (mut names, mut beginnings) = (Vec::new(), Vec::new());
        for name in list.split(';').filter(|name| !name.is_empty()) {
            let (text, into) = match name.strip_suffix('*') {
                Some(beginning) => (beginning, &mut beginnings),
                None => (name, &mut names),
            };
            if text.contains('*') || check_destination(text).is_err() {
                return Err(wrong(name));
            }
            into.push(text.to_owned());
        }
        Ok(Self { names, beginnings })
    }

    /// Checks that a spool can keep them.
    ///
    /// # Errors
    /// The consumer of a name would have a name that is too long.
    pub fn check_consumers(&self) -> Result<(), OptionError> {
        let mut all = self.names.iter().chain(&self.beginnings);
        all.find(|name| consumer(name).is_none())
            .map_or(Ok(()), |name| {
                let text = format!(
                    "has {name:?}, which a spool cannot keep: the name of its consumer would be longer than {MOST_BYTES} characters"
                );
                Err(OptionError::new("queues", text))
            })
    }

    /// Whether a destination is a queue.
    pub fn has(&self, destination: &str) -> bool {
        let mut beginnings = self.beginnings.iter();
        beginnings.any(|beginning| destination.starts_with(beginning.as_str()))
            || self.names.iter().any(|name| name == destination)
    }
}

/// The name of a queue's consumer; `None` if it would be too long.
pub fn consumer(queue: &str) -> Option<String> {
    let mut name = String::from(PREFIX);
    for byte in queue.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            name.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(name, ".{byte:02X}");
        }
    }
    (name.len() <= MOST_BYTES).then_some(name)
}

/// The queue of a consumer; `None` if the consumer is no queue's.
pub fn queue(consumer: &str) -> Option<String> {
    let mut parts = consumer.strip_prefix(PREFIX)?.split('.');
    let mut queue = parts.next()?.to_owned();
    for part in parts {
        let (hex, rest) = part.split_at_checked(2)?;
        let byte = u8::from_str_radix(hex, 16).ok().filter(u8::is_ascii)?;
        queue.push(char::from(byte));
        queue.push_str(rest);
    }
    (self::consumer(&queue)? == consumer).then_some(queue)
}

/// The beginning of the names of queues' consumers.
const PREFIX: &str = "micromsg.";
/// The most bytes of a consumer's name.
const MOST_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_named_or_begin_as_told() {
        let names = QueueNames::read("queue/*;jobs;").unwrap();
        for (name, is_queue) in [
            ("queue/a", true),
            ("queue/", true),
            ("queue", false),
            ("jobs", true),
            ("jobs/1", false),
            ("", false),
        ] {
            assert_eq!(names.has(name), is_queue, "{name}");
        }
        assert!(QueueNames::read("*").unwrap().has("anything"));
        assert!(!QueueNames::read("").unwrap().has("queue/a"));
        for wrong in ["a*b", "**", "é", &"x".repeat(256)] {
            assert!(
                QueueNames::read(wrong)
                    .unwrap_err()
                    .to_string()
                    .starts_with("queues has")
            );
        }
    }

    #[test]
    fn names_that_a_spool_cannot_keep_are_named() {
        let [fits, long] = [55, 56].map(|len| "x".repeat(len));
        assert!(QueueNames::read(&fits).unwrap().check_consumers().is_ok());
        for wrong in [format!("a;{long}"), format!("a/*;{long}*")] {
            let error = QueueNames::read(&wrong).unwrap().check_consumers();
            let error = error.unwrap_err().to_string();
            assert!(error.contains(&long) && error.contains("64"), "{error}");
        }
    }

    #[test]
    fn a_consumer_has_the_name_of_its_queue() {
        for (name, wanted) in [
            ("queue/jobs", "micromsg.queue.2Fjobs"),
            ("a.b_c-D", "micromsg.a.2Eb_c-D"),
            ("", "micromsg."),
            ("x y", "micromsg.x.20y"),
        ] {
            assert_eq!(consumer(name).as_deref(), Some(wanted));
            assert_eq!(queue(wanted).as_deref(), Some(name));
        }
        assert_eq!(consumer(&"x".repeat(56)), None);
        for other in [
            "spark",
            "micromsg.a.2",
            "micromsg.a.2fb",
            "micromsg.a.41",
            "micromsg.a.FF",
        ] {
            assert_eq!(queue(other), None, "{other}");
        }
    }
}
