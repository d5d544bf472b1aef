//! Tokens: secrets that identify clients without certificates, inside TLS.
//!
//! No link protocol but `MicroMsg2` has a field for one, so a token goes before the protocol: as
//! the first bytes of the session, in a header of the PROXY protocol, version 2, with the command
//! `LOCAL` and one TLV of type `0xE0`. A listener that refuses it answers with such a header whose
//! TLV has type `0xE1` and gives the reason, and closes.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::files::{read, wrong};
use super::{TlsError, sha256};
use crate::proxy::SIGNATURE;

/// A client's token in its encoded form.
#[derive(Debug)]
pub(super) struct Token {
    header: Vec<u8>,
}

/// The known tokens by their SHA-256, so that the time of a lookup reveals nothing about a token.
#[derive(Debug)]
pub(super) struct Tokens {
    names: HashMap<String, Arc<str>>,
}

impl Token {
    /// Reads the file of `token_file`: one line.
    pub(super) fn read(path: &Path) -> Result<Self, TlsError> {
        let bytes = read(OWN, path)?;
        let token = bytes.trim_ascii();
        let why = match what_is_wrong(token) {
            Some(_) if token.is_empty() => "is empty",
            Some(_) if token.contains(&b'\n') => "has more than one line",
            Some(why) => why,
            None => {
                let header = header(TOKEN, token);
                return Ok(Self { header });
            }
        };
        Err(wrong(OWN, path, why))
    }

    /// The first bytes of a session.
    pub(super) fn header(&self) -> &[u8] {
        &self.header
    }
}

impl Tokens {
    /// Reads the file of `tokens_file`: a name and a token in each line. A name may have several
    /// tokens.
    pub(super) fn read(path: &Path) -> Result<Self, TlsError> {
        let bytes = read(ALL, path)?;
        let mut names = HashMap::new();
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let wrong = |why: &str| wrong(ALL, path, &format!("line {}: {why}", number + 1));
            let at = line.iter().position(u8::is_ascii_whitespace);
            let (name, token) = line.split_at(at.ok_or_else(|| wrong("is no name and token"))?);
            let token = token.trim_ascii();
            if name.len() > LONGEST_NAME || !name.iter().all(u8::is_ascii_graphic) {
                return Err(wrong("the name is not 1 to 64 visible characters of ASCII"));
            }
            if let Some(why) = what_is_wrong(token) {
                return Err(wrong(&format!("the token {why}")));
            }
            let name: Arc<str> = String::from_utf8_lossy(name).into();
            if names.insert(sha256(token), name).is_some() {
                return Err(wrong("the token is given twice"));
            }
        }
        if names.is_empty() {
            return Err(wrong(ALL, path, "holds no token: no client could connect"));
        }
        Ok(Self { names })
    }

    /// Reads a client's token, and no byte after it. Returns the client's name.
    pub(super) async fn greet(
        &self,
        client: &mut (impl AsyncRead + Unpin),
    ) -> Result<Arc<str>, TlsError> {
        let mut head = [0; HEAD];
        let mut came = 0;
        while came < HEAD {
            let read = client.read(&mut head[came..]).await.map_err(broken)?;
            came += read;
            let fits = came.min(SIGNATURE.len());
            if head[..fits] != SIGNATURE[..fits] || (read == 0 && came == 0) {
                return Err(TlsError::TokenMissing);
            }
            if read == 0 {
                return Err(TlsError::TokenMalformed("it ended in it"));
            }
        }
        let [.., version_command, _, high, low] = head;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if version_command != LOCAL {
            return Err(TlsError::TokenMalformed(
                "it is no header of version 2 with the command LOCAL",
            ));
        }
        if length > LONGEST_BODY {
            return Err(TlsError::TokenMalformed(
                "its header has more than 1,024 bytes",
            ));
        }
        let mut body = vec![0; length];
        let whole = client.read_exact(&mut body).await;
        whole.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => TlsError::TokenMalformed("it ended in it"),
            _ => broken(error),
        })?;
        let token = only(&body, TOKEN).map_err(TlsError::TokenMalformed)?;
        let name = self.names.get(&sha256(token)).map(Arc::clone);
        name.ok_or(TlsError::TokenWrong)
    }
}

/// The answer to a client whose token was refused with this error; none if it sent no token.
pub(super) fn refusal(error: &TlsError) -> Option<Vec<u8>> {
    match error {
        TlsError::TokenMalformed(_) | TlsError::TokenWrong => {
            Some(header(REFUSAL, error.code().as_bytes()))
        }
        _ => None,
    }
}

/// The listener's refusal in its first bytes, if they are one.
pub(super) fn refused(bytes: &[u8]) -> Option<TlsError> {
    let body = bytes.strip_prefix(SIGNATURE)?.get(HEAD - SIGNATURE.len()..);
    let code = body
        .and_then(|body| value(body, REFUSAL))
        .unwrap_or_default();
    let why = if code == TlsError::TokenWrong.code().as_bytes() {
        "the listener does not know our token: token_file is another than its tokens_file has, or was changed there"
    } else {
        "the listener could not read our token"
    };
    Some(TlsError::TokenRefused(why))
}

fn header(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    let mut header = SIGNATURE.to_vec();
    header.extend([LOCAL, UNSPECIFIED]);
    header.extend(length.saturating_add(3).to_be_bytes());
    header.push(kind);
    header.extend(length.to_be_bytes());
    header.extend(value);
    header
}

/// The value of the first TLV of this type.
fn value(mut body: &[u8], wanted: u8) -> Option<&[u8]> {
    loop {
        let (kind, value, behind) = first(body)?;
        if kind == wanted {
            return Some(value);
        }
        body = behind;
    }
}

/// The value of the only TLV of this type, in a body of whole TLVs.
fn only(mut body: &[u8], wanted: u8) -> Result<&[u8], &'static str> {
    let mut found = None;
    while !body.is_empty() {
        let (kind, value, behind) = first(body).ok_or("its header has a TLV that is not whole")?;
        if kind == wanted && found.replace(value).is_some() {
            return Err("its header has two TLVs 0xE0");
        }
        body = behind;
    }
    found.ok_or("its header has no TLV 0xE0")
}

/// The type and the value of the first TLV, and the bytes after it.
fn first(body: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, high, low], rest) = body.split_first_chunk()?;
    let (value, behind) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
    Some((kind, value, behind))
}

fn what_is_wrong(token: &[u8]) -> Option<&'static str> {
    if !token.iter().all(u8::is_ascii_graphic) {
        return Some("has other than visible characters of ASCII");
    }
    (!LENGTHS.contains(&token.len())).then_some("has fewer than 16 or more than 255 characters")
}

fn broken(error: io::Error) -> TlsError {
    TlsError::from_io(error, 1)
}

/// The names of the options.
const OWN: &str = "token_file";
const ALL: &str = "tokens_file";

/// Characters of a token.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=255;
const LONGEST_NAME: usize = 64;
const HEAD: usize = 16;
const LOCAL: u8 = 0x20;
const UNSPECIFIED: u8 = 0;
/// The rest of a header.
const LONGEST_BODY: usize = 1_024;
/// Types of TLVs that section 2.2.7 leaves to applications.
const TOKEN: u8 = 0xe0;
const REFUSAL: u8 = 0xe1;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    const ONE: &str = "0123456789abcdef";
    const OTHER: &str = "fedcba9876543210";

    async fn name(tokens: &Tokens, bytes: &[u8]) -> Result<(String, Vec<u8>), String> {
        let mut client = bytes;
        let name = tokens.greet(&mut client).await;
        name.map(|name| (name.to_string(), client.to_vec()))
            .map_err(|error| error.code().to_owned())
    }

    #[tokio::test]
    async fn a_client_is_known_by_its_token_and_no_byte_behind_it_is_read() {
        let own = file(&format!("{ONE}\n"));
        let sent = Token::read(own.path()).unwrap().header().to_vec();
        // The bytes as they are documented.
        assert_eq!(
            sent,
            [
                b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\x13\xe0\0\x10",
                ONE.as_bytes()
            ]
            .concat()
        );
        let all = file(&format!("# ours\n\n web-1\t{ONE} \r\ndb {OTHER}\n"));
        let tokens = Tokens::read(all.path()).unwrap();
        let with_more = [&sent[..], b"2W"].concat();
        assert_eq!(
            name(&tokens, &with_more).await,
            Ok(("web-1".into(), b"2W".to_vec()))
        );
        let mut with_others = header(0x04, b"noop");
        with_others.extend(&header(TOKEN, OTHER.as_bytes())[HEAD..]);
        with_others[15] += 19;
        assert_eq!(
            name(&tokens, &with_others).await,
            Ok(("db".into(), Vec::new()))
        );
    }

    #[tokio::test]
    async fn an_unknown_token_is_refused_by_its_code() {
        let all = file(&format!("web-1 {ONE}"));
        let tokens = Tokens::read(all.path()).unwrap();
        let good = header(TOKEN, ONE.as_bytes());
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            bytes
        };
        // The same with more behind the token.
        let with = |more: &[u8]| {
            let mut bytes = [&good[..], more].concat();
            bytes[15] += u8::try_from(more.len()).unwrap();
            bytes
        };
        for (bytes, code) in [
            (with(b"\x04"), "token.malformed"),
            (with(b"\x04\0\x02\0"), "token.malformed"),
            (with(&good[HEAD..]), "token.malformed"),
            (header(TOKEN, OTHER.as_bytes()), "token.wrong"),
            (header(TOKEN, &ONE.as_bytes()[1..]), "token.wrong"),
            (header(TOKEN, b""), "token.wrong"),
            (b"2W\0\0\0\x01".to_vec(), "token.missing"),
            (b"\r\n\r\nX".to_vec(), "token.missing"),
            (Vec::new(), "token.missing"),
            (good[..15].to_vec(), "token.malformed"),
            (good[..30].to_vec(), "token.malformed"),
            (changed(12, 0x21), "token.malformed"),
            (changed(14, 5), "token.malformed"),
            (changed(16, 0xe1), "token.malformed"),
            (changed(18, 0x11), "token.malformed"),
        ] {
            assert_eq!(
                name(&tokens, &bytes).await,
                Err(code.to_owned()),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn an_unusable_token_file_is_reported_by_its_line_and_never_by_its_token() {
        let short = "0123456789abcde";
        let long = "x".repeat(256);
        for (text, why) in [
            (String::new(), "holds no token"),
            ("# none\n".into(), "holds no token"),
            (format!("\n{ONE}"), "line 2: is no name and token"),
            (format!("a {short}"), "line 1: the token has fewer than 16"),
            (
                format!("a {long}"),
                "line 1: the token has fewer than 16 or more than 255",
            ),
            (
                format!("a {ONE} b"),
                "line 1: the token has other than visible",
            ),
            (
                format!("a {ONE}\nb {ONE}"),
                "line 2: the token is given twice",
            ),
            (
                format!("{} {ONE}", "n".repeat(65)),
                "line 1: the name is not",
            ),
        ] {
            let file = file(&text);
            let error = Tokens::read(file.path()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(
                error.starts_with("tokens_file /") && !error.contains(short),
                "{error}"
            );
        }
        for (text, why) in [
            (String::new(), "is empty"),
            (format!("{ONE}\n{OTHER}"), "has more than one line"),
            (short.to_owned(), "has fewer than 16"),
        ] {
            let file = file(&text);
            let error = Token::read(file.path()).unwrap_err().to_string();
            assert!(
                error.starts_with("token_file /") && error.contains(why),
                "{error}"
            );
        }
    }

    #[test]
    fn a_refusal_is_distinguished_from_the_beginning_of_a_protocol() {
        let wrong = TlsError::TokenWrong;
        let heard = refused(&refusal(&wrong).unwrap()).unwrap();
        assert_eq!(heard.code(), "token.refused");
        assert!(
            heard.to_string().contains("does not know our token"),
            "{heard}"
        );
        let malformed = refusal(&TlsError::TokenMalformed("")).unwrap();
        assert!(
            refused(&malformed)
                .unwrap()
                .to_string()
                .contains("could not read")
        );
        assert!(refusal(&TlsError::TokenMissing).is_none());
        assert!(refused(b"2A\0\0\0\x01").is_none());
        assert!(refused(b"\r\n").is_none());
    }
}
