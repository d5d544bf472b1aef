//! The agreement on extensions: the server's reply, the client's final handshake, and the check of that one.
//!
//! Everything beyond plain messages is an extension (REQ-MM-6). The client decides last (REQ-MM-9, REQ-MM-16); what it names, in its order, has the numbers of extension frames
//! (REQ-MM-17). An extension that one side requires and the other lacks ends the connection (REQ-MM-11, REQ-MM-12).

use crate::text::{Extension, read_extensions};
use crate::{Kind, Limits, Terms};

/// The count that holds where no side states one (REQ-MM-27).
const DEFAULT_COUNT: u16 = 10;
/// The largest count: fewer than there are sequence numbers (R-MM-8).
const MOST: u16 = 65_534;
/// The most extensions: a number has one byte (R-MM-20).
const MOST_EXTENSIONS: usize = 255;
/// The names of a count, the one that we send first (R-MM-7).
const COUNTS: [&str; 4] = ["max-count", "count", "batch-max", "MessagesPerAck"];

/// The two lists of a handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    pub(crate) required: Vec<Extension>,
    pub(crate) optional: Vec<Extension>,
}

impl Lists {
    /// Reads the lists of the peer; of two entries with one name the first counts (R-MM-21).
    pub(crate) fn read(required: &[u8], optional: &[u8], limits: &Limits) -> Result<Self, Kind> {
        let lists = Self {
            required: read(required, limits)?,
            optional: read(optional, limits)?,
        };
        lists.all().try_for_each(|one| counts(one).map(|_| ()))?;
        Ok(lists)
    }

    pub(crate) fn own(terms: &Terms) -> Self {
        Self {
            required: terms.required.clone(),
            optional: terms.optional.clone(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Extension> {
        self.required.iter().chain(&self.optional)
    }

    /// Bytes of memory behind both lists.
    pub(crate) fn held_bytes(&self) -> usize {
        held_bytes(&self.required).saturating_add(held_bytes(&self.optional))
    }

    fn has(&self, name: &str) -> bool {
        self.all().any(|one| one.name == name)
    }
}

/// Bytes of memory behind a list.
pub(crate) fn held_bytes(list: &[Extension]) -> usize {
    let held = |texts: usize, behind: usize| texts.saturating_add(behind);
    let of_one = |one: &Extension| {
        let pairs = one.properties.iter();
        let pairs = pairs.map(|(name, value)| held(name.len(), value.len()));
        let pairs = pairs.map(|texts| held(texts, size_of::<(String, String)>()));
        pairs.fold(
            held(one.name.len(), size_of::<Extension>()),
            usize::saturating_add,
        )
    };
    list.iter().map(of_one).fold(0, usize::saturating_add)
}

/// The names of a text are limited: each takes more memory than its bytes.
pub(crate) fn check_names(text: &[u8], limits: &Limits) -> Result<(), Kind> {
    let separators = text
        .iter()
        .filter(|byte| matches!(byte, b';' | b','))
        .count();
    let names = u64::try_from(separators).unwrap_or(u64::MAX);
    Limits::length(names, limits.max_names, "--max-names").map(|_| ())
}

fn read(text: &[u8], limits: &Limits) -> Result<Vec<Extension>, Kind> {
    check_names(text, limits)?;
    read_extensions(text)
}

/// The counts that a `batch-ack` states.
fn counts(one: &Extension) -> Result<Option<u16>, Kind> {
    if one.name != "batch-ack" {
        return Ok(None);
    }
    let stated = one.properties.iter();
    let stated = stated.filter(|(name, _)| COUNTS.contains(&name.as_str()));
    let mut least = None;
    for (_, value) in stated {
        let is_number = value.bytes().all(|digit| digit.is_ascii_digit());
        let count = value
            .parse::<u16>()
            .ok()
            .filter(|count| is_number && (1..=MOST).contains(count));
        let Some(count) = count else {
            return Err(wrong_count(value, MOST));
        };
        least = Some(least.unwrap_or(count).min(count));
    }
    Ok(least)
}

fn wrong_count(value: &str, most: u16) -> Kind {
    Kind::InvalidExtensionProperty {
        name: "batch-ack".to_owned(),
        value: value.chars().take(20).collect(),
        most,
    }
}

/// The smallest count that any of these lists states (R-MM-8).
fn smallest<'a>(lists: impl IntoIterator<Item = &'a Lists>) -> Option<u16> {
    let all = lists.into_iter().flat_map(Lists::all);
    // They were read before.
    all.filter_map(|one| counts(one).ok().flatten()).min()
}

fn push(list: &mut Vec<Extension>, one: Extension) {
    if list.iter().all(|other| other.name != one.name) {
        list.push(one);
    }
}

/// The reply to a client (R-MM-19, R-MM-V1).
pub(crate) fn reply(terms: &Terms, client: &Lists) -> Result<Lists, Kind> {
    lacks(&client.required, |name| terms.has(name), "the server")?;
    let own = Lists::own(terms);
    let is_required = |name: &str| {
        let mut required = client.required.iter().chain(&own.required);
        required.any(|one| one.name == name)
    };
    let mut optional = Vec::new();
    for one in &client.optional {
        if terms.has(&one.name) && !is_required(&one.name) {
            push(&mut optional, of(&own.optional, &one.name));
        }
    }
    for one in &own.optional {
        if !one.properties.is_empty() || !(client.has(&one.name) || is_required(&one.name)) {
            push(&mut optional, one.clone());
        }
    }
    Ok(Lists {
        required: own.required,
        optional,
    })
}

/// The extension of that name with the properties that stand in a list, or without.
fn of(list: &[Extension], name: &str) -> Extension {
    let found = list.iter().find(|one| one.name == name).cloned();
    found.unwrap_or_else(|| Extension {
        name: name.to_owned(),
        properties: Vec::new(),
    })
}

fn lacks(
    required: &[Extension],
    has: impl Fn(&str) -> bool,
    lacks: &'static str,
) -> Result<(), Kind> {
    match required.iter().find(|one| !has(&one.name)) {
        None => Ok(()),
        Some(one) => Err(Kind::MissingExtension {
            name: one.name.clone(),
            lacks,
        }),
    }
}

/// The client's final handshake (R-MM-V2): everything that is used from now on.
pub(crate) fn decide(terms: &Terms, reply: &Lists) -> Result<Lists, Kind> {
    lacks(&reply.required, |name| terms.has(name), "the client")?;
    let own = Lists::own(terms);
    let count = smallest([&own, reply]);
    let mut chosen = Lists::default();
    for one in own.required.iter().chain(&reply.required) {
        push(&mut chosen.required, one.clone());
    }
    let listed = own.optional.iter().filter(|one| reply.has(&one.name));
    let suggested = reply.optional.iter().filter(|one| terms.has(&one.name));
    for one in listed.chain(suggested) {
        if chosen.required.iter().all(|other| other.name != one.name) {
            push(&mut chosen.optional, one.clone());
        }
    }
    for one in chosen.required.iter_mut().chain(&mut chosen.optional) {
        one.properties = properties(&one.name, &own, reply, count);
    }
    check_number(chosen.all().count())?;
    Ok(chosen)
}

/// The properties of an extension in the final handshake: our own, else the server's.
fn properties(name: &str, own: &Lists, reply: &Lists, count: Option<u16>) -> Vec<(String, String)> {
    let stated = own.all().chain(reply.all()).filter(|one| one.name == name);
    let stated = stated.map(|one| &one.properties);
    let mut stated = stated.filter(|properties| !properties.is_empty());
    let mut properties = stated.next().cloned().unwrap_or_default();
    if let Some(count) = count.filter(|_| name == "batch-ack") {
        properties.retain(|(name, _)| !COUNTS.contains(&name.as_str()));
        let [own, ..] = COUNTS;
        properties.insert(0, (own.to_owned(), count.to_string()));
    }
    properties
}

fn check_number(count: usize) -> Result<(), Kind> {
    if count > MOST_EXTENSIONS {
        return Err(Kind::TooManyExtensions { count });
    }
    Ok(())
}

/// Checks the client's final handshake (R-MM-20) against its first one and our reply.
pub(crate) fn check(client: &Lists, reply: &Lists, chosen: &Lists) -> Result<Agreed, Kind> {
    let mut names = std::collections::HashSet::new();
    if let Some(one) = chosen.all().find(|one| !names.insert(one.name.as_str())) {
        let name = one.name.clone();
        return Err(Kind::DuplicateExtension { name });
    }
    check_number(names.len())?;
    let required = client.required.iter().chain(&reply.required);
    for one in required {
        let has = |name: &str| names.contains(name);
        lacks(std::slice::from_ref(one), has, "the final handshake")?;
    }
    let is_offered = |one: &&Extension| {
        let mut required = client.required.iter();
        required.any(|other| other.name == one.name) || reply.has(&one.name)
    };
    if let Some(one) = chosen.all().find(|one| !is_offered(one)) {
        let name = one.name.clone();
        return Err(Kind::UnexpectedExtension { name });
    }
    let most = smallest([client, reply]).unwrap_or(MOST);
    if let Some(count) = smallest([chosen]).filter(|count| *count > most) {
        return Err(wrong_count(&count.to_string(), most));
    }
    Ok(Agreed::new(
        chosen.all().cloned().collect(),
        smallest([client, reply, chosen]),
    ))
}

/// The extensions of a connection, in the order of their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    extensions: Vec<Extension>,
    /// The number of the extension that acknowledges, and the messages that may wait for it.
    ack: Option<(u8, u16)>,
}

impl Agreed {
    /// The extensions, and the smallest count that was stated. Of several that acknowledge the first counts (R-MM-22); `ack`
    /// has a window of one (REQ-MM-31).
    fn new(extensions: Vec<Extension>, count: Option<u16>) -> Self {
        let mut agreed = Self {
            extensions,
            ack: None,
        };
        let [ack, batch] = ["ack", "batch-ack"].map(|name| agreed.id(name));
        let batch_window = count.unwrap_or(DEFAULT_COUNT);
        agreed.ack = match (ack, batch) {
            (Some(ack), Some(batch)) if batch < ack => Some((batch, batch_window)),
            (Some(ack), _) => Some((ack, 1)),
            (None, Some(batch)) => Some((batch, batch_window)),
            (None, None) => None,
        };
        agreed
    }

    /// The agreement of a client that has decided.
    pub(crate) fn decided(terms: &Terms, reply: &Lists, chosen: &Lists) -> Self {
        let count = smallest([&Lists::own(terms), reply, chosen]);
        Self::new(chosen.all().cloned().collect(), count)
    }

    /// Reads a list as if it were a final handshake.
    pub(crate) fn established(extensions: Vec<Extension>) -> Result<Self, Kind> {
        let chosen = Lists {
            required: extensions,
            optional: Vec::new(),
        };
        chosen.all().try_for_each(|one| counts(one).map(|_| ()))?;
        check(&chosen, &chosen, &chosen)
    }

    /// The number of an extension.
    pub(crate) fn id(&self, name: &str) -> Option<u8> {
        let at = self.extensions.iter().position(|one| one.name == name)?;
        u8::try_from(at.checked_add(1)?).ok()
    }

    /// The name of the extension with a number.
    pub(crate) fn name(&self, id: u8) -> Option<&str> {
        let at = usize::from(id).checked_sub(1)?;
        self.extensions.get(at).map(|one| one.name.as_str())
    }

    pub(crate) fn len(&self) -> usize {
        self.extensions.len()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.extensions.iter().map(|one| one.name.as_str())
    }

    pub(crate) const fn ack(&self) -> Option<(u8, u16)> {
        self.ack
    }

    pub(crate) fn extensions(&self) -> &[Extension] {
        &self.extensions
    }
}

/// Checks a list of this end: names once each, and counts in their range.
pub(crate) fn check_own(list: &[&Extension]) -> Result<(), Kind> {
    let mut names = std::collections::HashSet::new();
    if let Some(one) = list.iter().find(|one| !names.insert(one.name.as_str())) {
        let name = one.name.clone();
        return Err(Kind::DuplicateExtension { name });
    }
    check_number(names.len())?;
    list.iter().try_for_each(|one| counts(one).map(|_| ()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // tests may panic
mod tests {
    use ackline_core::ErrorKind as _;

    use super::*;
    use crate::text::write_extensions;

    fn lists(required: &str, optional: &str) -> Lists {
        Lists::read(required.as_bytes(), optional.as_bytes(), &Limits::default()).unwrap()
    }

    fn terms(required: &str, optional: &str, supported: &[&str]) -> Terms {
        let own = lists(required, optional);
        Terms {
            required: own.required,
            optional: own.optional,
            supported: supported.iter().map(|name| (*name).to_owned()).collect(),
            ..Terms::default()
        }
    }

    fn written(lists: Result<Lists, Kind>) -> Result<[String; 2], &'static str> {
        let lists = lists.map_err(|kind| kind.code())?;
        Ok([&lists.required, &lists.optional].map(|list| write_extensions(list)))
    }

    fn sides(required: &str, optional: &str) -> [String; 2] {
        [required, optional].map(str::to_owned)
    }

    #[test]
    fn a_reply_has_own_requirements_then_the_clients_suggestions_then_own_ones() {
        let server = terms("x-need:k=1", "own;both:p=1;bare;client", &["json", "xml"]);
        for (client, wanted) in [
            (
                lists("", ""),
                Ok(sides("x-need:k=1", "own;both:p=1;bare;client")),
            ),
            (
                lists("json", "xml;unknown"),
                Ok(sides("x-need:k=1", "xml;own;both:p=1;bare;client")),
            ),
            // Each of the client's in its order, with own properties.
            (
                lists("", "client;both:p=9;xml;xml"),
                Ok(sides("x-need:k=1", "client;both:p=1;xml;own;bare")),
            ),
            // Requirements are not repeated, except a suggestion with properties.
            (
                lists("both;bare", "x-need;bare"),
                Ok(sides("x-need:k=1", "own;both:p=1;client")),
            ),
            (lists("unknown", ""), Err("micromsg.missing_extension")),
        ] {
            assert_eq!(written(reply(&server, &client)), wanted, "{client:?}");
        }
    }

    #[test]
    fn a_client_decides_on_what_it_has_with_own_properties_before_the_servers() {
        let client = terms("a", "x:k=1;y;a", &["z"]);
        for (reply, wanted) in [
            (lists("", ""), Ok(sides("a", ""))),
            (
                lists("", "z:k=2;y:k=3;x:k=4;unknown"),
                Ok(sides("a", "x:k=1;y:k=3;z:k=2")),
            ),
            (lists("z:k=5;a:k=6", "z;a"), Ok(sides("a:k=6;z:k=5", ""))),
            (lists("y", "y"), Ok(sides("a;y", ""))),
            (lists("unknown", ""), Err("micromsg.missing_extension")),
        ] {
            assert_eq!(written(decide(&client, &reply)), wanted, "{reply:?}");
        }
    }

    #[test]
    fn the_smallest_stated_count_is_decided_on_in_the_name_that_we_send() {
        for (own, reply, wanted) in [
            ("batch-ack", "batch-ack", "batch-ack"),
            (
                "batch-ack:max-count=7",
                "batch-ack",
                "batch-ack:max-count=7",
            ),
            (
                "batch-ack:max-count=7",
                "batch-ack:count=3",
                "batch-ack:max-count=3",
            ),
            (
                "batch-ack:MessagesPerAck=2,x=1",
                "batch-ack:batch-max:9",
                "batch-ack:max-count=2,x=1",
            ),
            (
                "batch-ack",
                "batch-ack:count=9,max-count=4",
                "batch-ack:max-count=4",
            ),
        ] {
            let decided = decide(&terms("", own, &[]), &lists("", reply));
            assert_eq!(written(decided), Ok(sides("", wanted)));
        }
    }

    #[test]
    fn counts_are_numbers_from_1_to_65_534() {
        for value in ["", "0", "65535", "99999", "-1", "+1", "1.5", "x", "%20"] {
            let text = format!("batch-ack:max-count={value}");
            let read = Lists::read(b"", text.as_bytes(), &Limits::default());
            assert_eq!(
                read.unwrap_err().code(),
                "micromsg.invalid_extension_property",
                "{value}"
            );
        }
        for (text, count) in [
            ("batch-ack:max-count=65534", Some(65_534)),
            ("batch-ack:count=1", Some(1)),
            ("batch-ack:other=0", None),
            ("ack:max-count=0", None),
        ] {
            assert_eq!(smallest([&lists("", text)]), count, "{text}");
        }
    }

    #[test]
    fn a_final_handshake_has_what_is_required_and_offered_once_and_255_extensions_at_most() {
        let many = |count: usize| {
            let names = (0..count).map(|at| format!("e{at}"));
            names.collect::<Vec<_>>().join(";")
        };
        let (client, offer) = (
            lists("a", "b;batch-ack:count=8"),
            lists("c", "b;batch-ack:count=6"),
        );
        let check = |chosen: Lists| check(&client, &offer, &chosen).map_err(|kind| kind.code());
        for (chosen, code) in [
            (lists("a;c", ""), None),
            (lists("", "c;a"), None),
            (lists("a", "b"), Some("micromsg.missing_extension")),
            (lists("c", "b"), Some("micromsg.missing_extension")),
            (lists("a;c", "d"), Some("micromsg.unexpected_extension")),
            (lists("a;c;a", ""), Some("micromsg.duplicate_extension")),
            (lists("a;c", "c"), Some("micromsg.duplicate_extension")),
            (lists("a;c", "batch-ack:count=6"), None),
            (
                lists("a;c", "batch-ack:count=7"),
                Some("micromsg.invalid_extension_property"),
            ),
        ] {
            assert_eq!(check(chosen.clone()).err(), code, "{chosen:?}");
        }
        for (count, is_sound) in [(255, true), (256, false)] {
            let chosen = lists(&many(count), "");
            assert_eq!(
                super::check(&chosen, &chosen, &chosen).is_ok(),
                is_sound,
                "{count}"
            );
        }
    }

    #[test]
    fn of_both_acknowledgements_the_first_counts_and_the_window_is_the_smallest_count() {
        for (table, ack) in [
            ("json", None),
            ("json;ack", Some((2, 1))),
            ("batch-ack;ack", Some((1, 10))),
            ("ack;batch-ack:count=5", Some((1, 1))),
            ("x;batch-ack:count=5;ack", Some((2, 5))),
        ] {
            let agreed = Agreed::established(lists(table, "").required).unwrap();
            assert_eq!(agreed.ack(), ack, "{table}");
        }
        let agreed = Agreed::established(lists("a;b;c", "").required).unwrap();
        assert_eq!(
            [0, 1, 3, 4, 255].map(|id| agreed.name(id)),
            [None, Some("a"), Some("c"), None, None]
        );
        assert_eq!(
            ["a", "c", "d"].map(|name| agreed.id(name)),
            [Some(1), Some(3), None]
        );
    }

    #[test]
    fn names_are_limited_by_their_separators() {
        let limits = Limits {
            max_names: 2,
            ..Limits::default()
        };
        for (text, is_sound) in [
            ("a;b;c", true),
            ("a:k=1,l=2;b", true),
            ("a;b;c;", false),
            ("a:k=1,l=2,m=3;b", false),
        ] {
            let read = Lists::read(text.as_bytes(), b"", &limits);
            assert_eq!(read.is_ok(), is_sound, "{text}");
        }
    }
}
