//! Properties of messages (REQ-MM-22): `name:value;name:value;`. Tools read all properties, strictly. Filters look up single
//! properties, without allocation and by the same rules: properties that cannot be read have no entry. The connection does not parse properties (R-MM-V11).

use std::collections::HashMap;

use ackline_core::UsageError;

use super::percent::EscapedText;
use super::value::{Property, PropertyRef};
use super::{Wrong, are_name, check_ascii, entries, is_name, read_name, split_once};
use crate::{Kind, refusal};

/// Reads properties with their types. An empty text has none; names may come twice.
///
/// # Errors
/// `NotAscii`, `InvalidProperties`, `InvalidPercentEncoding`.
pub fn read_properties(text: &[u8]) -> Result<Vec<(String, Property)>, Kind> {
    let invalid = |text, reason| Kind::InvalidProperties { text, reason };
    let read = check_ascii(text).and_then(|()| entries(text).map(read_property).collect());
    read.map_err(|wrong| wrong.into_kind("the properties", text, invalid))
}

/// Writes properties with their types, each with a semicolon behind it (R-MM-9). Names may be those of other
/// implementations (R-MM-11): a message that came can be sent on.
///
/// # Errors
/// `invalid_name`: no peer could read the name. `not_finite`.
pub fn write_properties<'a>(
    properties: impl IntoIterator<Item = (&'a str, &'a Property)>,
) -> Result<String, UsageError> {
    let mut out = String::new();
    for (name, value) in properties {
        if !is_name(name) {
            return Err(refusal::INVALID_PROPERTY_NAME);
        }
        out.push_str(name);
        out.push(':');
        value.write(&mut out)?;
        out.push(';');
    }
    Ok(out)
}

fn read_property(entry: &[u8]) -> Result<(String, Property), Wrong> {
    let (name, value) = read_pair(entry)?;
    Ok((name.to_owned(), PropertyRef::from(value).into()))
}

fn read_pair(entry: &[u8]) -> Result<(&str, EscapedText<'_>), Wrong> {
    let (name, value) = split_once(entry, b":").ok_or(Wrong::Structure("an entry has no colon"))?;
    let name = read_name(name)?;
    Ok((name, EscapedText::read(value).ok_or(Wrong::Escape)?))
}

/// Whether all properties can be read.
fn are_sound(text: &[u8]) -> bool {
    check_ascii(text).is_ok() && entries(text).all(|entry| read_pair(entry).is_ok())
}

/// The properties of one message, split once. Properties of which a part cannot be read have no entry, as
/// [`read_properties`] refuses them (R-MM-V10); of two entries with one name the first counts.
#[derive(Debug, Clone)]
pub struct Properties<'a> {
    raw: &'a [u8],
    /// The first entries that have a colon.
    entries: [Entry; ROOM],
    /// Entries in use.
    count: usize,
    /// Offset of the text behind these entries. Each look-up splits it again, but for an [`index`](Self::index).
    rest: usize,
    /// The first value of each name behind these entries.
    index: Option<HashMap<&'a [u8], &'a [u8]>>,
    /// The whole text is split, its entries are sound, and it is ASCII without escapes: every value can be read.
    is_plain: bool,
}

/// The position of an entry in the text.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    start: u16,
    colon: u16,
    /// Offset of the value; 0 without a colon.
    value: u16,
    end: u16,
}

impl<'a> Properties<'a> {
    /// Splits the properties of a message, as they were sent.
    pub fn new(raw: &'a [u8]) -> Self {
        let mut properties = Self {
            raw,
            entries: [Entry::default(); ROOM],
            count: 0,
            rest: 0,
            index: None,
            is_plain: true,
        };
        properties.split();
        if !properties.is_plain && !are_sound(raw) {
            properties.raw = &[];
            properties.count = 0;
        }
        properties
    }

    /// Makes all look-ups as quick as those of the first entries, where there are more than these. It takes memory, and pays
    /// where many conditions are tried.
    pub fn index(&mut self) {
        if self.rest < self.raw.len() && self.index.is_none() {
            let mut index = HashMap::new();
            for (name, value) in self.behind() {
                index.entry(name).or_insert(value);
            }
            self.index = Some(index);
        }
    }

    /// The value of a property.
    pub fn get(&self, name: &str) -> Option<PropertyRef<'a>> {
        read_name(name.as_bytes()).ok()?;
        self.find(name.as_bytes()).map(PropertyRef::from)
    }

    /// The properties, in their order. A name may come twice.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, PropertyRef<'a>)> {
        let pairs = self.indexed().chain(self.behind());
        pairs.filter_map(|(name, value)| {
            let name = read_name(name).ok()?;
            Some((name, PropertyRef::read(value)?))
        })
    }

    /// The value of a property, with the letter of its type. The name must be a valid one.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<EscapedText<'a>> {
        let named = |(own, _): &(&[u8], &[u8])| *own == name;
        if self.is_plain {
            let (_, value) = self.indexed().find(named)?;
            return Some(EscapedText::plain(value));
        }
        let mut split = self.indexed();
        let value = match &self.index {
            Some(index) => {
                let first = split.find(named).map(|(_, value)| value);
                first.or_else(|| index.get(name).copied())?
            }
            None => split.chain(self.behind()).find(named)?.1,
        };
        EscapedText::read(value)
    }

    /// Names and values of the split entries.
    fn indexed(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let raw = self.raw;
        let entries = self.entries.iter().take(self.count);
        entries.filter_map(move |entry| {
            let name = raw.get(usize::from(entry.start)..usize::from(entry.colon))?;
            let value = raw.get(usize::from(entry.value)..usize::from(entry.end))?;
            Some((name, value))
        })
    }

    /// Names and values behind the split entries.
    fn behind(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let rest = self.raw.get(self.rest..).unwrap_or_default();
        let entries = rest.split(|byte| *byte == b';');
        entries.filter_map(|entry| split_once(entry, b":"))
    }

    /// Splits the text as far as there is room, eight bytes at a time.
    fn split(&mut self) {
        let text = self.raw.get(..MOST_SPLIT).unwrap_or(self.raw);
        let (words, tail) = text.as_chunks::<WORD>();
        let last = last_word(text, tail);
        let mut entry = Entry::default();
        let mut special = 0;
        let mut start = 0_u16;
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        for word in words.chain([last]) {
            special |= word & repeated(0x80) | find_byte(word, b'%');
            // The colon is the even number before the semicolon.
            let mut separators = find_byte(word | repeated(1), b';');
            while separators != 0 {
                let before = u16::try_from(separators.trailing_zeros() >> 3).unwrap_or_default();
                separators &= separators.wrapping_sub(1);
                entry.end = start.saturating_add(before);
                let is_end = text.get(usize::from(entry.end)) == Some(&b';');
                if !is_end {
                    entry.see_colon();
                } else if !self.push(&mut entry) {
                    self.is_plain = false;
                    return;
                }
            }
            start = start.saturating_add(8); // the bytes of a word
        }
        let end = u16::try_from(self.raw.len());
        self.is_plain &= end.is_ok() && special == 0;
        entry.end = end.unwrap_or(entry.start);
        // Nothing stands behind the last semicolon.
        if entry.start < entry.end {
            self.is_plain &= self.push(&mut entry);
        }
    }

    /// Keeps an entry, unless there is no room for it, and begins the next one.
    fn push(&mut self, entry: &mut Entry) -> bool {
        let name = usize::from(entry.start)..usize::from(entry.colon);
        let is_sound = self.raw.get(name).is_some_and(are_name);
        self.is_plain &= is_sound;
        if is_sound {
            let Some(kept) = self.entries.get_mut(self.count) else {
                return false;
            };
            *kept = *entry;
            self.count = self.count.saturating_add(1);
        }
        self.rest = usize::from(entry.end).saturating_add(1);
        *entry = Entry {
            start: entry.end.saturating_add(1),
            ..Entry::default()
        };
        true
    }
}

impl Entry {
    /// Notes a colon at the current end. Those in a value do not count.
    fn see_colon(&mut self) {
        if self.value == 0 {
            self.colon = self.end;
            self.value = self.end.saturating_add(1);
        }
    }
}

/// The bytes behind the whole words of a text, and zeros.
fn last_word(text: &[u8], tail: &[u8]) -> u64 {
    let bits = u32::try_from(tail.len())
        .unwrap_or_default()
        .wrapping_mul(8);
    let beside = u64::BITS.wrapping_sub(bits);
    match text.last_chunk::<WORD>() {
        Some(word) => u64::from_le_bytes(*word)
            .checked_shr(beside)
            .unwrap_or_default(),
        None => tail
            .iter()
            .rev()
            .fold(0, |word, byte| (word << 8) | u64::from(*byte)),
    }
}

/// The highest bit of every byte of a word that equals `byte`. Other bits are 0.
const fn find_byte(word: u64, byte: u8) -> u64 {
    let differences = word ^ repeated(byte);
    let low = repeated(0x7f);
    // No addition carries into the next byte. The highest bit of a byte of the sum is 0 only if its low bits are 0.
    !((differences & low).wrapping_add(low) | differences | low)
}

/// A word of eight times one byte.
const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD])
}

/// Bytes that are looked at together.
const WORD: usize = 8;

/// Entries that are split once. Messages seldom have more.
const ROOM: usize = 32;

/// Bytes of a text that are split once. A message has no more, and an offset has 16 bits.
const MOST_SPLIT: usize = 65_535;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::value::Number;
    use super::*;

    fn whole(number: i64) -> Property {
        Property::Number(Number::Whole(number))
    }

    fn text(text: &str) -> Property {
        Property::Text(text.to_owned())
    }

    fn named(properties: &[(&str, Property)]) -> Vec<(String, Property)> {
        let owned = |(name, value): &(&str, Property)| ((*name).to_owned(), value.clone());
        properties.iter().map(owned).collect()
    }

    fn written(properties: &[(String, Property)]) -> Result<String, UsageError> {
        write_properties(
            properties
                .iter()
                .map(|(name, value)| (name.as_str(), value)),
        )
    }

    fn found(raw: &[u8], name: &str) -> Option<Property> {
        Properties::new(raw).get(name).map(Property::from)
    }

    #[test]
    fn canonical_properties_are_read_and_written_again() {
        for (raw, properties) in [
            ("", &[][..]),
            (
                "count:N1;when:D1413198000.0;greeting:THello%20%22world%22;",
                &[
                    ("count", whole(1)),
                    ("when", Property::Date(1_413_198_000.0)),
                    ("greeting", text("Hello \"world\"")),
                ],
            ),
            (
                "a:N-9223372036854775808;b:N9223372036854775807;",
                &[("a", whole(i64::MIN)), ("b", whole(i64::MAX))],
            ),
            ("a:N1;a:N2;", &[("a", whole(1)), ("a", whole(2))]),
        ] {
            let properties = named(properties);
            assert_eq!(written(&properties).as_deref(), Ok(raw));
            assert_eq!(read_properties(raw.as_bytes()), Ok(properties), "{raw}");
        }
    }

    #[test]
    fn other_forms_of_peers_are_read() {
        for (raw, properties) in [
            (
                "first_name:jonas;twitter:jgauffin;",
                &[("first_name", text("jonas")), ("twitter", text("jgauffin"))][..],
            ),
            ("a:Tx", &[("a", text("x"))]),
            ("a:", &[("a", text(""))]),
            ("a:b:c=d,e", &[("a", text("b:c=d,e"))]),
            ("<a>:N1", &[("<a>", whole(1))]),
        ] {
            assert_eq!(
                read_properties(raw.as_bytes()),
                Ok(named(properties)),
                "{raw}"
            );
        }
    }

    #[test]
    fn empty_entries_missing_colons_and_bad_names_are_invalid() {
        for raw in [
            ";",
            "abc;",
            "abc",
            "a:N1;;b:N2",
            "a:N1;;",
            ";a:N1",
            ":N1",
            "a b:N1",
            "a=b:N1",
            "a,b:N1",
        ] {
            let read = read_properties(raw.as_bytes());
            assert!(
                matches!(&read, Err(Kind::InvalidProperties { text, .. }) if text == raw),
                "{raw} {read:?}"
            );
        }
    }

    #[test]
    fn other_bytes_than_ascii_and_bad_escapes_have_errors_of_their_own() {
        let field = "the properties";
        for raw in ["a:Té", "é:N1", ";é"] {
            assert_eq!(
                read_properties(raw.as_bytes()),
                Err(Kind::NotAscii { field }),
                "{raw}"
            );
        }
        for raw in ["a:T%4", "a:%", "a:N1%;", "b:N1;a:T%C3"] {
            let error = Kind::InvalidPercentEncoding { field };
            assert_eq!(read_properties(raw.as_bytes()), Err(error), "{raw}");
        }
    }

    #[test]
    fn names_that_cannot_be_read_and_numbers_that_are_not_finite_are_refused() {
        for name in ["A", "first_name", "<a>"] {
            let given = named(&[(name, whole(1))]);
            let raw = format!("{name}:N1;");
            assert_eq!(written(&given).as_deref(), Ok(&*raw));
            assert_eq!(read_properties(raw.as_bytes()), Ok(given));
        }
        for name in ["", "a b", "é", "a:b", "a;", "a,", "a="] {
            assert_eq!(
                written(&named(&[(name, whole(1))])),
                Err(refusal::INVALID_PROPERTY_NAME),
                "{name}"
            );
        }
        let number = Property::Number(Number::Fraction(f64::NAN));
        for value in [Property::Date(f64::INFINITY), number] {
            assert_eq!(written(&named(&[("a", value)])), Err(refusal::NOT_FINITE));
        }
    }

    #[test]
    fn properties_that_cannot_be_read_have_no_entry() {
        for raw in [
            "a:N1;b",
            "a:N1;;",
            ";a:N1",
            "a:N1;;b:N2",
            "a:N1;b:T%4",
            "a:T%4;a:N1",
            "a:N1;b:T\u{e9}",
            "a:N1;\u{e9}:N1",
            "a:N1;:N1",
            "a:N1;b c:N1",
            "a:N1;b,c:N1",
            "a:N1;b=c:N1",
        ] {
            let many = format!("{}{raw}", "x:N1;".repeat(40));
            for raw in [raw, &many] {
                assert!(read_properties(raw.as_bytes()).is_err(), "{raw}");
                assert_eq!(found(raw.as_bytes(), "a"), None, "{raw}");
                assert_eq!(Properties::new(raw.as_bytes()).iter().count(), 0, "{raw}");
            }
        }
        for raw in ["b:a:N1", "xa:N1;ax:N1", "A:N1", ""] {
            assert_eq!(found(raw.as_bytes(), "a"), None, "{raw}");
        }
        for raw in ["a:N1", "a:N1;", "b:T%41;a:N1;", "a:N1;a:N2"] {
            assert_eq!(found(raw.as_bytes(), "a"), Some(whole(1)), "{raw}");
        }
    }

    #[test]
    fn all_entries_are_found_beyond_those_that_are_split_once() {
        for count in [1, 31, 32, 33, 34, 64, 5_000] {
            let entries = (0..count).map(|at| format!("n{at}:N{at};"));
            let raw: String = entries.collect();
            for at in (0..count).step_by(7).chain([count - 1]) {
                assert_eq!(
                    found(raw.as_bytes(), &format!("n{at}")),
                    Some(whole(at)),
                    "{count}"
                );
            }
            assert_eq!(found(raw.as_bytes(), &format!("n{count}")), None);
            let numbers = Properties::new(raw.as_bytes());
            let numbers = numbers.iter().map(|(_, value)| Property::from(value));
            assert!(numbers.eq((0..count).map(whole)));
        }
    }

    #[test]
    fn entries_are_found_around_the_end_of_16_bits() {
        let ends = 65_400_usize..65_700;
        for length in ends.step_by(1) {
            for raw in [
                format!("a:T{};b:N1", "x".repeat(length)),
                format!("x:{};b:N1", "x".repeat(length)),
                format!("{}:N2;b:N1", "x".repeat(length)),
            ] {
                assert_eq!(found(raw.as_bytes(), "b"), Some(whole(1)), "{length}");
                assert_eq!(found(raw.as_bytes(), "d"), None, "{length}");
            }
        }
    }

    #[test]
    fn look_ups_of_thousands_of_properties_are_quick_with_an_index() {
        let raw = (0..9_000).map(|number| format!("{number}:N1;"));
        let raw = raw.collect::<Vec<_>>().concat();
        let mut properties = Properties::new(raw.as_bytes());
        properties.index();
        #[allow(clippy::disallowed_methods)] // its time is measured
        let begin = std::time::Instant::now();
        for number in 0..100_000 {
            let found = properties.find(number.to_string().as_bytes());
            assert_eq!(found.is_some(), number < 9_000);
        }
        // Without an index each of them looks at 9,000 entries, which takes half a minute.
        assert!(begin.elapsed().as_secs() < 4, "{:?}", begin.elapsed());
    }

    fn raw_properties() -> impl Strategy<Value = Vec<u8>> {
        let entry = "([ab]|[ab:;%x, ]{0,3})(:|::|)([NDT]?[12.]{0,3}|T?(%41|%|é|b){0,2})";
        let count = prop_oneof![0_usize..5, 30_usize..36];
        let entries = count.prop_flat_map(move |count| proptest::collection::vec(entry, count));
        entries.prop_map(|entries| entries.join(";").into_bytes())
    }

    proptest! {
        #[test]
        fn written_properties_are_read_again(properties in proptest::collection::vec(
            ("[a-z0-9-]{1,8}", prop_oneof![
                any::<i64>().prop_map(whole),
                any::<i32>().prop_map(|number| Property::Date(f64::from(number) / 8.0)),
                any::<i32>().prop_map(|number| Property::Number(Number::Fraction(f64::from(number) / 8.0))),
                any::<String>().prop_map(Property::Text),
            ]),
            0..40,
        )) {
            let raw = written(&properties).unwrap();
            let view = Properties::new(raw.as_bytes());
            let viewed = view.iter().map(|(name, value)| (name.to_owned(), value.into()));
            prop_assert_eq!(&viewed.collect::<Vec<_>>(), &properties);
            prop_assert_eq!(read_properties(raw.as_bytes()), Ok(properties));
        }

        #[test]
        fn a_view_has_the_entries_that_are_read(
            raw in prop_oneof![raw_properties(), proptest::collection::vec(any::<u8>(), 0..40)],
        ) {
            let read = read_properties(&raw).unwrap_or_default();
            let view = Properties::new(&raw);
            let viewed: Vec<(String, Property)> =
                view.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
            prop_assert_eq!(&viewed, &read);
            for name in ["a", "b", "x", "", "a b"] {
                let first = read.iter().find(|(own, _)| own == name);
                let first = first.map(|(_, value)| value.clone());
                prop_assert_eq!(view.get(name).map(Property::from), first.clone());
                let mut indexed = view.clone();
                indexed.index();
                prop_assert_eq!(indexed.get(name).map(Property::from), first);
            }
        }
    }
}
