//! Subscriptions, and messages to the topics of the peer's subscriptions.

use std::sync::Arc;

use bytes::Bytes;

use super::{End, SIZES, World};
use crate::Event;
use crate::fuzzing::filters::Condition;
use crate::fuzzing::model::{Coming, Sent, Subscription};
use crate::text::{Number, Properties, Property};

/// Topics. A message cannot have the last one as its destination.
const TOPICS: [&str; 4] = ["t", "T", "", "topic/ä;=,"];
const NAMES: [&str; 4] = ["n", "m", "x-y", "n"];
const OPERATORS: [&str; 8] = ["=", "!=", "<", "<=", ">", ">=", "&", "~"];

fn chosen<const N: usize>(list: [&'static str; N], choice: u8) -> &'static str {
    let at = usize::from(choice).checked_rem(N).unwrap_or(0);
    list.get(at).copied().unwrap_or_default()
}

/// A value as it is written, and the property for which that stands; none if it cannot be read.
fn value(choice: u8) -> (&'static str, Option<Property>) {
    let whole = |number| Property::Number(Number::Whole(number));
    let text = |text: &str| Property::Text(text.to_owned());
    let (raw, value) = match choice {
        0..=31 => ("N3", whole(3)),
        32..=63 => ("N-4", whole(-4)),
        64..=79 => ("N2.50", Property::Number(Number::Fraction(2.5))),
        80..=95 => ("N3.0", Property::Number(Number::Fraction(3.0))),
        96..=111 => ("D3", Property::Date(3.0)),
        112..=127 => ("D3.25", Property::Date(3.25)),
        128..=159 => ("Tab", text("ab")),
        160..=191 => ("Tab%20%C3%A4b", text("ab äb")),
        192..=207 => ("Tb", text("b")),
        208..=223 => ("T", text("")),
        224..=239 => ("ab", text("ab")),
        240..=247 => ("Nab", text("Nab")),
        _ => return ("T%4", None),
    };
    (raw, Some(value))
}

/// A condition, as it is written and as plain data; none if no filter can have it.
fn condition(choice: u8, value_choice: u8) -> (String, Option<Condition>) {
    let (name, operator) = (chosen(NAMES, choice), chosen(OPERATORS, choice >> 2));
    let (raw, value) = value(value_choice);
    // A text without its letter has no type.
    let has_type = !matches!(value, Some(Property::Text(_))) || raw.starts_with('T');
    let condition = value.filter(|_| has_type).map(|value| Condition {
        name: name.to_owned(),
        operator,
        value,
    });
    let condition = condition.filter(Condition::is_sound);
    (format!("{name}{operator}{raw}"), condition)
}

/// The properties of a message, as they are written and as plain data; none if one of them cannot be read.
fn properties(count: u8, mut next: impl FnMut() -> u8) -> (String, Vec<(String, Property)>) {
    let (mut written, mut all) = (String::new(), Some(Vec::new()));
    for _ in 0..count {
        let name = chosen(NAMES, next());
        let (raw, value) = value(next());
        written.extend([name, ":", raw, ";"]);
        all = all.zip(value).map(|(mut all, value)| {
            all.push((name.to_owned(), value));
            all
        });
    }
    (written, all.unwrap_or_default())
}

impl World {
    /// Subscribes to a topic, or ends a subscription.
    pub(super) fn subscribe(&mut self, at: usize, mut next: impl FnMut() -> u8) {
        let choice = next();
        let topic = chosen(TOPICS, choice & 3);
        let has = self.has("pub-sub");
        if choice & 0b1100 == 0b1100 {
            let result = self.end(at).connection.unsubscribe(topic);
            if self.allowed(at, &result, has) {
                self.end(at).sends.put(Coming::Unsubscribe(topic));
            }
            return;
        }
        let conditions = (0..choice >> 4 & 3).map(|_| condition(next(), next()));
        let (texts, conditions): (Vec<_>, Vec<_>) = conditions.unzip();
        let filter = (!texts.is_empty()).then(|| texts.join(";"));
        let result = self.end(at).connection.subscribe(topic, filter.as_deref());
        let conditions: Option<Vec<_>> = conditions.into_iter().collect();
        let sound = conditions.as_ref().map(|_| ()).ok_or("invalid_filter");
        if self.allowed(at, &result, has.and(sound)) {
            self.end(at).sends.put(Coming::Subscribe(Subscription {
                topic,
                filter,
                conditions: conditions.unwrap_or_default(),
            }));
        }
    }

    /// Sends a message to a topic, if the peer has a subscription that the message matches.
    pub(super) fn publish(&mut self, at: usize, mut next: impl FnMut() -> u8) {
        let choice = next();
        let topic = chosen(TOPICS, choice & 3);
        let (written, properties) = properties(choice >> 2 & 3, next);
        let end = self.end(at);
        let mut view = Properties::new(written.as_bytes());
        let found = end.subscriptions.matching(topic, &mut view).count();
        let wanted = end.topics.matching(topic, &properties);
        assert_eq!(found, wanted, "{topic:?} {written:?} {:?}", end.topics);
        if found == 0 {
            return;
        }
        self.number = self.number.wrapping_add(1);
        let size = SIZES.get(usize::from(choice >> 5)).copied();
        let sent = Sent {
            number: self.end(at).sends.next_number(),
            destination: topic,
            properties: written,
            payload: Bytes::from(vec![self.number; size.unwrap_or(0)]),
            dotnet_type: None,
        };
        self.send_one(at, sent);
    }
}

impl End {
    /// Takes a change of the peer's subscriptions: the event into the table, and the thing that was sent into the model.
    pub(super) fn subscribed(&mut self, event: &Event, sent: Coming) {
        match (event, sent) {
            (Event::Subscribe(came), Coming::Subscribe(sent)) => {
                let filter = came.filter.as_ref().map(Arc::clone);
                let is_new = self.subscriptions.set(&came.topic, (), filter);
                assert_eq!(is_new, self.topics.set(sent));
            }
            (Event::Unsubscribe { topic }, Coming::Unsubscribe(sent)) => {
                let is_removed = self.subscriptions.remove(topic, &());
                assert_eq!(is_removed, self.topics.remove(sent));
            }
            _ => {}
        }
    }
}
