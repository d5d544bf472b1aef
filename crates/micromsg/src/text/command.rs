//! Commands (REQ-MM-24): `subscribe;topic=a,filter=b`.

use ackline_core::UsageError;

use super::{Wrong, check_ascii, entries, is_field, read_name, read_pairs, write_pairs};
use crate::{Kind, refusal};

/// A command with its properties.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Command {
    /// The name.
    pub name: String,
    /// Names and values of its properties; the values without escapes.
    pub properties: Vec<(String, String)>,
}

/// Reads a command. Names of properties may come twice.
///
/// # Errors
/// `NotAscii`, `InvalidCommand`, `InvalidPercentEncoding`.
pub fn read_command(text: &[u8]) -> Result<Command, Kind> {
    let invalid = |text, reason| Kind::InvalidCommand { text, reason };
    read(text).map_err(|wrong| wrong.into_kind("the command", text, invalid))
}

/// Writes a command.
///
/// # Errors
/// `invalid_name`: a name has other characters than lower-case letters, digits and hyphens.
pub fn write_command(name: &str, properties: &[(String, String)]) -> Result<String, UsageError> {
    let mut names = properties.iter().map(|(name, _)| name.as_str());
    if !is_field(name) || !names.all(is_field) {
        return Err(refusal::INVALID_NAME);
    }
    let mut out = name.to_owned();
    if !properties.is_empty() {
        out.push(';');
        write_pairs(&mut out, properties);
    }
    Ok(out)
}

fn read(text: &[u8]) -> Result<Command, Wrong> {
    check_ascii(text)?;
    let mut entries = entries(text);
    let name = read_name(entries.next().unwrap_or_default())?.to_owned();
    let properties = entries.next().map(|pairs| read_pairs(pairs, b"="));
    let properties = properties.transpose()?.unwrap_or_default();
    if entries.next().is_some() {
        return Err(Wrong::Structure("a semicolon follows the properties"));
    }
    Ok(Command { name, properties })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(properties: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        properties.iter().map(owned).collect()
    }

    #[test]
    fn canonical_commands_are_read_and_written_again() {
        for (text, name, properties) in [
            ("ping", "ping", &[][..]),
            (
                "subscribe;topic=topic%2Fdomain-events,filter=age%3EN18",
                "subscribe",
                &[("topic", "topic/domain-events"), ("filter", "age>N18")],
            ),
            ("a;b=,b=1", "a", &[("b", ""), ("b", "1")]),
        ] {
            let properties = pairs(properties);
            assert_eq!(write_command(name, &properties).as_deref(), Ok(text));
            let name = name.to_owned();
            assert_eq!(
                read_command(text.as_bytes()),
                Ok(Command { name, properties }),
                "{text}"
            );
        }
    }

    #[test]
    fn other_forms_of_peers_are_read() {
        for (text, name, properties) in [
            ("ping;", "ping", &[][..]),
            (
                "CommandName;key=value,key=value",
                "CommandName",
                &[("key", "value"), ("key", "value")],
            ),
            ("a;b=c;", "a", &[("b", "c")]),
            ("a;b=c=d:e", "a", &[("b", "c=d:e")]),
        ] {
            let (name, properties) = (name.to_owned(), pairs(properties));
            assert_eq!(
                read_command(text.as_bytes()),
                Ok(Command { name, properties }),
                "{text}"
            );
        }
    }

    #[test]
    fn missing_names_empty_entries_and_missing_separators_are_invalid() {
        for text in [
            "",
            ";",
            ";a=b",
            "ping;;",
            "a;b",
            "a;b:c",
            "a;b=c,",
            "a;,b=c",
            "a;=c",
            "a;b=c;d=e",
            "a;b=c;;",
            "a b",
            "a:b",
            "a,b=c",
            "a=b",
            "a;b c=d",
        ] {
            let read = read_command(text.as_bytes());
            assert!(
                matches!(&read, Err(Kind::InvalidCommand { text: shown, .. }) if shown == text),
                "{text} {read:?}"
            );
        }
    }

    #[test]
    fn other_bytes_than_ascii_and_bad_escapes_have_errors_of_their_own() {
        let field = "the command";
        assert_eq!(read_command("ä;".as_bytes()), Err(Kind::NotAscii { field }));
        assert_eq!(
            read_command(b"a;b=%4"),
            Err(Kind::InvalidPercentEncoding { field })
        );
        assert_eq!(
            read_command(b"a;b=%ff"),
            Err(Kind::InvalidPercentEncoding { field })
        );
    }

    #[test]
    fn a_name_that_is_no_field_is_refused() {
        let named = |name: &str| pairs(&[("a", "1"), (name, "2")]);
        for name in ["", "A", "a_b", "a;b", "a=b", "é"] {
            assert_eq!(
                write_command(name, &[]),
                Err(refusal::INVALID_NAME),
                "{name}"
            );
            assert_eq!(
                write_command("a", &named(name)),
                Err(refusal::INVALID_NAME),
                "{name}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_written_command_is_read_again(
            name in "[a-z0-9-]{1,8}",
            properties in proptest::collection::vec(("[a-z0-9-]{1,8}", any::<String>()), 0..5),
        ) {
            let text = write_command(&name, &properties).unwrap();
            prop_assert_eq!(read_command(text.as_bytes()), Ok(Command { name, properties }));
        }

        #[test]
        fn no_text_panics(text in proptest::collection::vec(
            prop_oneof![Just(b';'), Just(b'='), Just(b','), Just(b'%'), Just(b'a'), any::<u8>()],
            0..24,
        )) {
            let _ = read_command(&text);
        }
    }
}
