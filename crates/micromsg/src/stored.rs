//! Messages as they are kept: each with its properties and its payload, as they came, and the length of each in front. A
//! length has seven bits in each byte, the lowest first, and the highest bit where another byte follows.

use crate::text::{PropertyRef, entries, read_name, split_once};
use std::borrow::Cow;

/// Appends a length.
pub fn put_length(out: &mut Vec<u8>, length: usize) {
    let mut rest = length;
    loop {
        let [low, ..] = rest.to_le_bytes();
        rest >>= 7;
        if rest == 0 {
            out.push(low & 0x7f);
            return;
        }
        out.push(low | 0x80);
    }
}

/// A kept message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored<'a> {
    /// Its properties, as they came.
    pub properties: &'a [u8],
    /// Its payload.
    pub payload: &'a [u8],
}

/// The kept messages of a body, from the first one on.
#[derive(Debug, Clone)]
pub struct StoredMessages<'a> {
    /// The bytes of the messages that are still to come.
    rest: &'a [u8],
    /// The number of the next message.
    next: u32,
    /// The number of messages.
    count: u32,
}

impl<'a> StoredMessages<'a> {
    /// The messages of a body that announces `count` of them.
    pub const fn new(body: &'a [u8], count: u32) -> Self {
        Self {
            rest: body,
            next: 0,
            count,
        }
    }

    /// Leaves out so many messages.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn skip(&mut self, messages: u32) -> Result<(), String> {
        for _ in 0..messages {
            self.read()?;
        }
        Ok(())
    }

    /// Reads the next message.
    ///
    /// # Errors
    /// The body ends within it, or goes on behind the last one; the text is a sentence.
    pub fn read(&mut self) -> Result<Stored<'a>, String> {
        let properties = self.part()?;
        let payload = self.part()?;
        self.next = self.next.saturating_add(1);
        if self.next == self.count && !self.rest.is_empty() {
            let more = self.rest.len();
            let count = self.count;
            return Err(format!(
                "{more} bytes stand behind the {count} messages of the block"
            ));
        }
        Ok(Stored {
            properties,
            payload,
        })
    }

    /// The bytes behind their length.
    fn part(&mut self) -> Result<&'a [u8], String> {
        let split = split_length(self.rest);
        let split = split.and_then(|(length, rest)| rest.split_at_checked(length));
        let (part, rest) = split.ok_or_else(|| {
            let Self { next, count, .. } = self;
            format!("the block announces {count} messages and holds {next}")
        })?;
        self.rest = rest;
        Ok(part)
    }
}

/// The length in front, and the bytes behind it.
fn split_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut length = 0_usize;
    let mut rest = bytes;
    for shift in (0_u32..usize::BITS).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        let bits = usize::from(byte & 0x7f);
        let shifted = bits << shift;
        if shifted >> shift != bits {
            return None;
        }
        length |= shifted;
        if byte & 0x80 == 0 {
            return Some((length, rest));
        }
    }
    None
}

/// The name of a property, and its value as it was sent: without the letter of its type, and without escapes.
pub type PropertyText<'a> = (&'a str, Cow<'a, str>);

/// The properties of a message as text, in their order; `None` for an entry that cannot be read. A number keeps the digits
/// with which it was sent.
pub fn property_texts(raw: &[u8]) -> impl Iterator<Item = Option<PropertyText<'_>>> {
    entries(raw).map(|entry| {
        let (name, value) = split_once(entry, b":")?;
        let name = read_name(name).ok()?;
        let text = match PropertyRef::read(value)? {
            PropertyRef::Text(text) => text.to_string_lossy(),
            // A letter and ASCII digits.
            PropertyRef::Number(_) | PropertyRef::Date(_) => {
                String::from_utf8_lossy(value.get(1..)?)
            }
        };
        Some((name, text))
    })
}

/// A name and its value.
pub type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The attributes of a message: its properties, and behind them the whole text where some of it cannot be read. `facts` are
/// names of facts about a peer beside those that begin with `tls.`, `micromsg.` or `property.`.
pub fn attributes<'a>(properties: &'a [u8], facts: &'a [&str]) -> impl Iterator<Item = Pair<'a>> {
    let mut is_lossy = false;
    let all = property_texts(properties).map(Some).chain([None]);
    all.filter_map(move |one| match one {
        Some(Some(property)) => Some(named(property, facts)),
        Some(None) => {
            is_lossy = true;
            None
        }
        None => is_lossy.then(|| (PROPERTIES.into(), String::from_utf8_lossy(properties))),
    })
}

/// A property under the name of its attribute. A receiver gives some names to facts that a peer has proved, and a message
/// must not look as if it had them, also where the block has none.
fn named<'a>((name, value): PropertyText<'a>, facts: &[&str]) -> Pair<'a> {
    let is_fact =
        facts.contains(&name) || FACT_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if is_fact {
        return (format!("property.{name}").into(), value);
    }
    (name.into(), value)
}

/// The attribute with the properties of a message as they came, where some of them cannot be read.
const PROPERTIES: &str = "micromsg.properties";
/// Beginnings of names of facts about a peer.
const FACT_PREFIXES: [&str; 3] = ["tls.", "micromsg.", "property."];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Kept = (Vec<u8>, Vec<u8>);

    fn body(messages: &[Kept]) -> Vec<u8> {
        let mut body = Vec::new();
        for (properties, payload) in messages {
            for part in [properties, payload] {
                put_length(&mut body, part.len());
                body.extend_from_slice(part);
            }
        }
        body
    }

    fn read_all(body: &[u8], count: u32, skipped: u32) -> Result<Vec<Kept>, String> {
        let mut stored = StoredMessages::new(body, count);
        stored.skip(skipped)?;
        let read = |_| {
            stored
                .read()
                .map(|one| (one.properties.to_vec(), one.payload.to_vec()))
        };
        (skipped..count).map(read).collect()
    }

    fn messages() -> impl Strategy<Value = Vec<Kept>> {
        let part = |most| proptest::collection::vec(any::<u8>(), 0..most);
        proptest::collection::vec((part(150), part(300)), 0..20)
    }

    proptest! {
        #[test]
        fn messages_come_back_from_any_one_on(
            messages in messages(),
            from in any::<prop::sample::Index>(),
        ) {
            let count = u32::try_from(messages.len()).unwrap();
            let from = from.index(messages.len().saturating_add(1));
            let skipped = u32::try_from(from).unwrap();
            let read = read_all(&body(&messages), count, skipped);
            prop_assert_eq!(read, Ok(messages[from..].to_vec()));
        }

        #[test]
        fn a_body_that_is_cut_or_goes_on_is_refused(messages in messages()) {
            prop_assume!(!messages.is_empty());
            let count = u32::try_from(messages.len()).unwrap();
            let whole = body(&messages);
            for cut in 0..whole.len() {
                prop_assert!(read_all(&whole[..cut], count, 0).is_err());
            }
            let longer = [&whole[..], &[0]].concat();
            prop_assert!(read_all(&longer, count, 0).is_err());
        }

        #[test]
        fn no_body_panics(
            body in proptest::collection::vec(any::<u8>(), 0..60),
            count in any::<u32>(),
            skipped in 0_u32..1_000,
        ) {
            let mut stored = StoredMessages::new(&body, count);
            let _ = stored.skip(skipped);
            for _ in 0..100 {
                if stored.read().is_err() {
                    break;
                }
            }
        }

        #[test]
        fn lengths_come_back(length in any::<usize>(), behind in any::<u8>()) {
            let mut written = Vec::new();
            put_length(&mut written, length);
            written.push(behind);
            prop_assert_eq!(split_length(&written), Some((length, &[behind][..])));
        }

        #[test]
        fn no_properties_panic(raw in "[a-b:;%NDT0-9.é\u{0}-]{0,40}") {
            let _ = property_texts(raw.as_bytes()).count();
        }
    }

    #[test]
    fn a_wrong_body_is_described() {
        for (body, count, says) in [
            (&[][..], 1, "announces 1 messages and holds 0"),
            (&[0, 1, 7, 0], 2, "announces 2 messages and holds 1"),
            (&[0, 1, 7, 9], 1, "1 bytes stand behind the 1 messages"),
            (&[0xff; 12], 1, "announces 1 messages and holds 0"),
        ] {
            let error = read_all(body, count, 0).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_property_is_its_text_without_its_type() {
        for (raw, wanted) in [
            ("a:N5;", &[Some(("a", "5"))][..]),
            ("a:N1.5;b:N007", &[Some(("a", "1.5")), Some(("b", "007"))]),
            ("a:D1413198000.0;", &[Some(("a", "1413198000.0"))]),
            ("a:Thello%20you%3B;", &[Some(("a", "hello you;"))]),
            (
                "a:Nancy;b:x%C3%A4;c:;",
                &[Some(("a", "Nancy")), Some(("b", "xä")), Some(("c", ""))],
            ),
            ("a:b:c;", &[Some(("a", "b:c"))]),
            (
                "a:N1;b:%f;c;:N1;d:N2",
                &[Some(("a", "1")), None, None, None, Some(("d", "2"))],
            ),
            (";;", &[None, None]),
            ("", &[]),
        ] {
            let read: Vec<_> = property_texts(raw.as_bytes()).collect();
            let read: Vec<_> = read
                .iter()
                .map(|one| one.as_ref().map(|(name, text)| (*name, &**text)))
                .collect();
            assert_eq!(read, wanted, "{raw}");
        }
    }

    fn shown(properties: &str) -> String {
        let pairs = attributes(properties.as_bytes(), &["sender", "proxy"]);
        let pairs = pairs.map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn properties_are_attributes_and_nothing_of_them_is_lost() {
        for (properties, wanted) in [
            ("", ""),
            ("a:N5;b:Tx%20y;", "a=5 b=x y"),
            ("a:N5;b;c:T1;", "a=5 c=1 micromsg.properties=a:N5;b;c:T1;"),
            ("a:%f;", "micromsg.properties=a:%f;"),
        ] {
            assert_eq!(shown(properties), wanted, "{properties}");
        }
    }

    #[test]
    fn no_property_looks_like_a_fact_about_the_peer() {
        for name in [
            "sender",
            "proxy",
            "tls.subject",
            "tls.",
            "micromsg.identity",
            "micromsg.properties",
            "property.a",
        ] {
            assert_eq!(shown(&format!("{name}:T1;")), format!("property.{name}=1"));
        }
        for name in [
            "senders",
            "tls",
            "tlsx",
            "micromsg",
            "Sender",
            "a.tls.subject",
        ] {
            assert_eq!(shown(&format!("{name}:T1;")), format!("{name}=1"));
        }
    }
}
