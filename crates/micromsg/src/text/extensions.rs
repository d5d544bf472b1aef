//! Lists of extensions in the handshake (REQ-MM-14): `json;batch-ack:max-count=10`.

use super::{Wrong, check_ascii, entries, read_name, read_pairs, split_once, write_pairs};
use crate::Kind;

/// An extension with its properties.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extension {
    /// The name.
    pub name: String,
    /// Names and values of its properties; the values without escapes.
    pub properties: Vec<(String, String)>,
}

/// Reads a list of extensions. An empty text is an empty list; names may come twice.
///
/// # Errors
/// `NotAscii`, `InvalidExtensionList`, `InvalidPercentEncoding`.
pub fn read_extensions(text: &[u8]) -> Result<Vec<Extension>, Kind> {
    let invalid = |text, reason| Kind::InvalidExtensionList { text, reason };
    let read = check_ascii(text).and_then(|()| entries(text).map(read_extension).collect());
    read.map_err(|wrong| wrong.into_kind("the list of extensions", text, invalid))
}

/// Writes a list of extensions, without a semicolon behind the last (R-MM-9). Names are written as they are, so that those
/// of a peer come back to it.
pub fn write_extensions(list: &[Extension]) -> String {
    let mut out = String::new();
    for (at, extension) in list.iter().enumerate() {
        if at > 0 {
            out.push(';');
        }
        out.push_str(&extension.name);
        if !extension.properties.is_empty() {
            out.push(':');
            write_pairs(&mut out, &extension.properties);
        }
    }
    out
}

fn read_extension(entry: &[u8]) -> Result<Extension, Wrong> {
    let (name, properties) = match split_once(entry, b":") {
        Some((name, properties)) => (name, Some(properties)),
        None => (entry, None),
    };
    let name = read_name(name)?.to_owned();
    // A colon stands between name and value in some examples of the specification (R-MM-7).
    let properties = properties.map(|text| read_pairs(text, b"=:")).transpose()?;
    Ok(Extension {
        name,
        properties: properties.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extension(name: &str, properties: &[(&str, &str)]) -> Extension {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Extension {
            name: name.to_owned(),
            properties: properties.iter().map(owned).collect(),
        }
    }

    #[test]
    fn canonical_lists_are_read_and_written_again() {
        for (text, list) in [
            ("", vec![]),
            (
                "json;xml",
                vec![extension("json", &[]), extension("xml", &[])],
            ),
            (
                "batch-ack:max-count=10;json",
                vec![
                    extension("batch-ack", &[("max-count", "10")]),
                    extension("json", &[]),
                ],
            ),
            (
                "x-a:k=%C3%A5%2B-._~%2F",
                vec![extension("x-a", &[("k", "å+-._~/")])],
            ),
            ("x-one:flag=", vec![extension("x-one", &[("flag", "")])]),
            (
                "x:a=1,b=2,a=3",
                vec![extension("x", &[("a", "1"), ("b", "2"), ("a", "3")])],
            ),
        ] {
            assert_eq!(
                read_extensions(text.as_bytes()).as_deref(),
                Ok(&*list),
                "{text}"
            );
            assert_eq!(write_extensions(&list), text);
        }
    }

    #[test]
    fn other_forms_of_peers_are_read() {
        for (text, list) in [
            (
                "json;xml;",
                vec![extension("json", &[]), extension("xml", &[])],
            ),
            (
                "json;json",
                vec![extension("json", &[]), extension("json", &[])],
            ),
            (
                "batch-ack:max-count:100;",
                vec![extension("batch-ack", &[("max-count", "100")])],
            ),
            ("x-a:k=a:b=c", vec![extension("x-a", &[("k", "a:b=c")])]),
            ("x-a:k:a=b", vec![extension("x-a", &[("k", "a=b")])]),
            (
                "my_ext;Json2",
                vec![extension("my_ext", &[]), extension("Json2", &[])],
            ),
            ("x-a:k=%c3%a5%2b+", vec![extension("x-a", &[("k", "å++")])]),
        ] {
            assert_eq!(
                read_extensions(text.as_bytes()).as_deref(),
                Ok(&*list),
                "{text}"
            );
        }
    }

    #[test]
    fn empty_entries_missing_separators_and_bad_names_are_invalid() {
        for text in [
            ";",
            ";;",
            "json;;xml",
            ";json",
            "json;;",
            "json:",
            "json:;",
            "json:a",
            "json:a=1,",
            "json:,a=1",
            "json:a=1,,b=2",
            "json:=1",
            ":a=1",
            "a b",
            "a,b",
            "a=b",
            "json:a b=1",
            "json: a=1",
            "json\n",
            "x:%",
        ] {
            let read = read_extensions(text.as_bytes());
            assert!(
                matches!(&read, Err(Kind::InvalidExtensionList { text: shown, .. }) if shown == text),
                "{text} {read:?}"
            );
        }
    }

    #[test]
    fn other_bytes_than_ascii_and_bad_escapes_have_errors_of_their_own() {
        let field = "the list of extensions";
        for text in ["jsön", ";;é", "x:a=é"] {
            assert_eq!(
                read_extensions(text.as_bytes()),
                Err(Kind::NotAscii { field }),
                "{text}"
            );
        }
        for text in ["x-a:k=%4", "x-a:k=%C3", "a;x:b=1,c=%zz;"] {
            let error = Kind::InvalidPercentEncoding { field };
            assert_eq!(read_extensions(text.as_bytes()), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_written_list_is_read_again(list in proptest::collection::vec(
            ("[a-z0-9_A-Z.-]{1,8}", proptest::collection::vec(("[!-+.-9<>-~]{1,6}", any::<String>()), 0..4)),
            0..5,
        )) {
            let list = list.into_iter().map(|(name, properties)| Extension { name, properties });
            let list: Vec<_> = list.collect();
            let text = write_extensions(&list);
            prop_assert_eq!(read_extensions(text.as_bytes()), Ok(list));
        }

        #[test]
        fn no_text_panics_and_a_list_that_is_read_is_written_in_one_form(
            text in proptest::collection::vec(
                prop_oneof![Just(b';'), Just(b':'), Just(b'='), Just(b','), Just(b'%'), Just(b'a'), Just(b'4'), any::<u8>()],
                0..24,
            ),
        ) {
            if let Ok(list) = read_extensions(&text) {
                let written = write_extensions(&list);
                prop_assert_eq!(read_extensions(written.as_bytes()), Ok(list));
            }
        }
    }
}
