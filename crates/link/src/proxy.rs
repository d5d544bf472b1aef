//! The PROXY protocol, versions 1 and 2, as `proxy-protocol.txt` of `HAProxy` has it: the client
//! whose connection a proxy forwards. Takes no byte after the header and holds at most 232 bytes of
//! it; other contents of a header (TLVs) are skipped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The client of a forwarded connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The client behind the proxy.
    Client(SocketAddr),
    /// The proxy's own connection (`LOCAL`: a health check) or one whose address it does not know
    /// (`UNKNOWN`, `UNSPEC`, a Unix socket): the connection's own address counts.
    Proxy,
}

/// The reason bytes are no PROXY header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProxyError {
    #[error("no PROXY header: the first byte is 0x{0:02x}")]
    Missing(u8),
    #[error("a PROXY header that {0}")]
    Malformed(&'static str),
}

/// Parses a header at any split of its bytes.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    head: Vec<u8>,
    /// Bytes of a version 2 header after the parsed part.
    skip: usize,
    source: Option<Source>,
}

impl Parser {
    /// Takes bytes of the header. Returns how many, and the source once the header is whole. Takes
    /// no byte after the header.
    ///
    /// # Errors
    /// The bytes are no PROXY header.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(usize, Option<Source>), ProxyError> {
        let mut taken = 0;
        for byte in bytes {
            if self.source.is_some() {
                break;
            }
            self.head.push(*byte);
            taken += 1;
            self.source = self.look()?;
        }
        let skipped = self.skip.min(bytes.len() - taken);
        self.skip -= skipped;
        let whole = self.source.filter(|_| self.skip == 0);
        Ok((taken + skipped, whole))
    }

    /// Bytes of the header that are held.
    pub(crate) fn held(&self) -> usize {
        self.head.len()
    }

    /// Whether no byte has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    fn look(&mut self) -> Result<Option<Source>, ProxyError> {
        match self.head.first() {
            Some(b'P') => text(&self.head),
            Some(b'\r') => self.binary(),
            first => Err(ProxyError::Missing(first.copied().unwrap_or(0))),
        }
    }

    fn binary(&mut self) -> Result<Option<Source>, ProxyError> {
        let head = &self.head;
        let signed = head.len().min(SIGNATURE.len());
        if head.get(..signed) != SIGNATURE.get(..signed) {
            return Err(ProxyError::Malformed("has a wrong signature"));
        }
        let Some((&[version_command, family, high, low], addresses)) = head
            .get(SIGNATURE.len()..)
            .and_then(|rest| rest.split_first_chunk())
        else {
            return Ok(None);
        };
        let announced = usize::from(u16::from_be_bytes([high, low]));
        let wanted = match (version_command, family) {
            // LOCAL: the rest of the header means nothing.
            (0x20, _) | (0x21, 0x00) => 0,
            (0x21, 0x11) => 12,
            (0x21, 0x21) => 36,
            (0x21, 0x31) => 216,
            (0x20..=0x2f, _) => {
                return Err(ProxyError::Malformed("names an unknown command or family"));
            }
            _ => return Err(ProxyError::Malformed("is of an unknown version")),
        };
        if announced < wanted {
            return Err(ProxyError::Malformed("is too short for its addresses"));
        }
        if addresses.len() < wanted {
            return Ok(None);
        }
        self.skip = announced - wanted;
        Ok(Some(match (version_command, family) {
            (0x21, 0x11) => client::<4>(addresses, 8),
            (0x21, 0x21) => client::<16>(addresses, 32),
            _ => Source::Proxy,
        }))
    }
}

/// The source address, of `N` bytes, and its port behind both addresses.
fn client<const N: usize>(addresses: &[u8], port_at: usize) -> Source
where
    IpAddr: From<[u8; N]>,
{
    let ip = addresses.first_chunk::<N>();
    let port = addresses.get(port_at..).and_then(<[u8]>::first_chunk::<2>);
    match (ip, port) {
        (Some(ip), Some(port)) => Source::Client(SocketAddr::new(
            IpAddr::from(*ip),
            u16::from_be_bytes(*port),
        )),
        _ => Source::Proxy,
    }
}

/// Version 1: one line of text, `PROXY TCP4 192.0.2.1 192.0.2.2 40000 5044\r\n`.
fn text(head: &[u8]) -> Result<Option<Source>, ProxyError> {
    let named = head.len().min(NAME.len());
    if head.get(..named) != NAME.get(..named) {
        return Err(ProxyError::Malformed("does not begin with \"PROXY \""));
    }
    let Some(line) = head.strip_suffix(b"\r\n") else {
        let has_bare_end =
            head.ends_with(b"\n") || head.iter().rev().skip(1).any(|byte| *byte == b'\r');
        return match (has_bare_end, head.len()) {
            (true, _) => Err(ProxyError::Malformed("does not end with CR LF")),
            (_, MAX_LINE..) => Err(ProxyError::Malformed("is longer than 107 bytes")),
            _ => Ok(None),
        };
    };
    let line = line.get(NAME.len()..).unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| ProxyError::Malformed("is not ASCII"))?;
    let mut words = line.split(' ');
    match words.next() {
        Some("UNKNOWN") => Ok(Some(Source::Proxy)),
        Some("TCP4") => addresses::<Ipv4Addr>(words).map(Some),
        Some("TCP6") => addresses::<Ipv6Addr>(words).map(Some),
        _ => Err(ProxyError::Malformed(
            "names neither TCP4 nor TCP6 nor UNKNOWN",
        )),
    }
}

fn addresses<'a, A: FromStr + Into<IpAddr>>(
    mut words: impl Iterator<Item = &'a str>,
) -> Result<Source, ProxyError> {
    let bad = ProxyError::Malformed("holds an invalid address or port");
    let mut address = || {
        words
            .next()
            .and_then(|word| word.parse::<A>().ok())
            .ok_or(bad)
    };
    let (source, _destination) = (address()?, address()?);
    let mut port = || words.next().and_then(number).ok_or(bad);
    let (port, _destination_port) = (port()?, port()?);
    match words.next() {
        None => Ok(Source::Client(SocketAddr::new(source.into(), port))),
        Some(_) => Err(ProxyError::Malformed("holds more than its addresses")),
    }
}

/// A port, without sign and leading zeros.
fn number(word: &str) -> Option<u16> {
    let is_canonical = word == "0" || !word.starts_with(['0', '+']);
    word.parse().ok().filter(|_| is_canonical)
}

/// Whether the first bytes begin a header, as far as they go; `None` if more are needed.
pub(crate) fn begins(bytes: &[u8]) -> Option<bool> {
    let fits = |name: &[u8]| {
        let common = bytes.len().min(name.len());
        (bytes.get(..common) == name.get(..common)).then_some(common == name.len())
    };
    match fits(NAME).or_else(|| fits(SIGNATURE)) {
        Some(true) => Some(true),
        Some(false) => None,
        None => Some(false),
    }
}

const NAME: &[u8] = b"PROXY ";
/// Section 2.2.
pub(crate) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Section 2.1: the longest line, with its CR LF.
const MAX_LINE: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> Source {
        Source::Client(text.parse().unwrap())
    }

    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend([command, family]);
        header.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        header.extend(body);
        header
    }

    const FOUR: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0x9c, 0x40, 0x13, 0xb4];

    fn six() -> Vec<u8> {
        let mut body = vec![0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        body.extend([0; 16]);
        body.extend([0x9c, 0x40, 0x13, 0xb4]);
        body
    }

    fn with_tlvs(mut body: Vec<u8>, bytes: usize) -> Vec<u8> {
        body.resize(body.len() + bytes, 4);
        body
    }

    fn good() -> Vec<(Vec<u8>, Source)> {
        let (four, six_at) = (client("192.0.2.7:40000"), client("[2001:db8::9]:40000"));
        let long = "PROXY UNKNOWN ".to_owned() + &"f".repeat(91) + "\r\n";
        assert_eq!(long.len(), MAX_LINE);
        vec![
            (
                b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 5044\r\n".to_vec(),
                four,
            ),
            (
                b"PROXY TCP6 2001:db8::9 ::1 40000 5044\r\n".to_vec(),
                six_at,
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), Source::Proxy),
            (b"PROXY UNKNOWN a b c\r\n".to_vec(), Source::Proxy),
            (long.into_bytes(), Source::Proxy),
            (v2(0x21, 0x11, &FOUR), four),
            (v2(0x21, 0x21, &six()), six_at),
            (v2(0x21, 0x11, &with_tlvs(FOUR.to_vec(), 300)), four),
            (v2(0x21, 0x11, &with_tlvs(FOUR.to_vec(), 65_535 - 12)), four),
            (v2(0x21, 0x31, &[b'x'; 216]), Source::Proxy),
            (v2(0x21, 0x00, &[]), Source::Proxy),
            (v2(0x20, 0x00, &[]), Source::Proxy),
            (v2(0x20, 0x11, &FOUR), Source::Proxy),
            (v2(0x20, 0xff, &[1; 70]), Source::Proxy),
        ]
    }

    #[test]
    fn headers_are_read_and_not_a_byte_behind_them() {
        for (header, source) in good() {
            let mut wire = header.clone();
            wire.extend(b"2W\0\0\0\x01");
            let pushed = Parser::default().push(&wire);
            assert_eq!(pushed, Ok((header.len(), Some(source))));
        }
    }

    #[test]
    fn any_split_of_a_header_reads_the_same() {
        for (header, source) in good() {
            let cuts = (1..header.len()).step_by((header.len() / 300).max(1));
            for cut in cuts {
                let (first, second) = header.split_at(cut);
                let mut parser = Parser::default();
                assert_eq!(parser.push(first), Ok((cut, None)), "cut at {cut}");
                assert_eq!(parser.push(second), Ok((second.len(), Some(source))));
            }
            let mut parser = Parser::default();
            let (last, rest) = header.split_last().unwrap();
            for byte in rest {
                assert_eq!(parser.push(&[*byte]), Ok((1, None)));
            }
            assert_eq!(parser.push(&[*last]), Ok((1, Some(source))));
        }
    }

    #[test]
    fn a_malformed_header_is_refused_at_its_first_wrong_byte() {
        let long = "PROXY UNKNOWN ".to_owned() + &"f".repeat(94);
        let mut tail = SIGNATURE.to_vec();
        tail[11] = b'!';
        let cases: Vec<(Vec<u8>, usize)> = vec![
            (b"2W\0\0\0\x01".to_vec(), 1),
            (b"\x16\x03\x01".to_vec(), 1),
            (b"PROXZ TCP4".to_vec(), 5),
            (b"PROXY TCP5 1.2.3.4 1.2.3.4 1 1\r\n".to_vec(), 32),
            (b"PROXY TCP4 1.2.3 1.2.3.4 1 1\r\n".to_vec(), 30),
            (b"PROXY TCP4 ::1 ::1 1 1\r\n".to_vec(), 24),
            (b"PROXY TCP6 1.2.3.4 1.2.3.4 1 1\r\n".to_vec(), 32),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 65536 1\r\n".to_vec(), 36),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 01 1\r\n".to_vec(), 33),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 +1 1\r\n".to_vec(), 33),
            (b"PROXY TCP4 1.2.3.4  1.2.3.4 1 1\r\n".to_vec(), 33),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1 x\r\n".to_vec(), 34),
            (b"PROXY TCP4 1.2.3.4\r\n".to_vec(), 20),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1\n".to_vec(), 31),
            (b"PROXY UNKNOWN \rx".to_vec(), 16),
            (b"PROXY \xff\xff\r\n".to_vec(), 10),
            (long.into_bytes(), MAX_LINE),
            (tail, 12),
            (v2(0x11, 0x11, &FOUR), 16),
            (v2(0x22, 0x11, &FOUR), 16),
            (v2(0x21, 0x12, &FOUR), 16),
            (v2(0x21, 0x21, &FOUR), 16),
            (v2(0x21, 0x11, &FOUR[..11]), 16),
        ];
        for (wire, at) in cases {
            let mut parser = Parser::default();
            let mut until = 0;
            let error = loop {
                let byte = [wire[until]];
                until += 1;
                match parser.push(&byte) {
                    Ok((1, None)) => {}
                    other => break other,
                }
            };
            assert!(error.is_err(), "{error:?} of {wire:?}");
            assert_eq!(until, at, "{wire:?}");
            assert!(Parser::default().push(&wire).is_err());
        }
    }

    #[test]
    fn a_beginning_is_recognized_as_soon_as_possible() {
        for (bytes, told) in [
            (&b"P"[..], None),
            (b"PROXY", None),
            (b"PROXY ", Some(true)),
            (b"PUT /", Some(false)),
            (b"\r\n\r\n", None),
            (b"\r\n\r\n\0\r\nQUIT\n!", Some(true)),
            (b"2", Some(false)),
        ] {
            assert_eq!(begins(bytes), told, "{bytes:?}");
        }
    }
}
