//! The runner of the conformance vectors: frame vectors and conversations, as JSON, for any protocol.
//!
//! Every frame vector is decoded whole, and at every strict prefix unless it is one text. Every conversation is run with
//! its bytes delivered whole, cut in two at every position of each `recv`, and byte by byte, on a
//! virtual clock. A member that the runner does not know is a failure. The format:
//! `tests/vectors/README.md`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ackline_core::described::Described;
use bytes::BytesMut;
use serde_json::{Map, Value};

mod conversation;
mod held;
mod json;
mod machine;

use conversation::run_conversation;

/// The result of decoding some bytes. Bytes are lower-case hex strings.
#[derive(Debug, Clone, Default)]
struct Decoded {
    /// The whole frames, in order.
    frames: Vec<Value>,
    /// Bytes after the last whole frame that wait for more.
    rest: usize,
    /// The kind of the decoder's error, without the protocol's name.
    error: Option<String>,
    /// Whether the bytes are one text, of which a prefix is another text.
    is_whole: bool,
}

/// Decodes as many whole frames as `bytes` hold, in the context of a frame vector.
fn decode(protocol: &dyn Described, context: &Value, bytes: &[u8]) -> Decoded {
    let mut decoded = Decoded::default();
    if let Err(wrong) = decode_into(&mut decoded, protocol, context, bytes) {
        decoded.error = Some(wrong);
    }
    decoded
}

fn decode_into(
    decoded: &mut Decoded,
    protocol: &dyn Described,
    context: &Value,
    bytes: &[u8],
) -> Result<(), String> {
    let context = context.as_object().ok_or("no context")?;
    let mut given = json::options(&protocol.decoding().fields(), context)?;
    given.retain(|(name, _)| name != "from");
    let sender = context.get("from").and_then(Value::as_str);
    let decoder = protocol.decoding_of(sender, given);
    let mut decoder = decoder.map_err(|error| error.to_string())?;
    let mut input = BytesMut::from(bytes);
    decoded.rest = input.len();
    decoded.is_whole = decoder.is_whole();
    while let Some(frame) = decoder
        .next(&mut input, 0)
        .map_err(|failure| short(failure.code))?
    {
        let described = protocol.frames().iter().find(|one| one.name == frame.name);
        if !described.is_some_and(|one| held::hold(one.fields, &frame.members)) {
            return Err(format!("a frame is not as it is described: {frame:?}"));
        }
        decoded.frames.push(json::frame(&frame));
        decoded.rest = input.len();
        if decoded.is_whole {
            break;
        }
    }
    Ok(())
}

/// Encodes `frames` in the canonical way, in the context of a frame vector.
fn encode(protocol: &dyn Described, context: &Value, frames: &[Value]) -> Result<Vec<u8>, String> {
    let context = context.as_object().ok_or("no context")?;
    let mut given = json::options(&protocol.decoding().fields(), context)?;
    given.retain(|(name, _)| name != "from");
    let frames: Vec<_> = frames.iter().map(json::source).collect();
    let mut out = Vec::new();
    let encoded = protocol.encode_from(given, &frames, &mut out);
    encoded.map_err(|error| error.to_string())?;
    Ok(out)
}

/// A code without the protocol's name.
fn short(code: &str) -> String {
    let name = code.rsplit_once('.').map_or(code, |(_, name)| name);
    name.to_owned()
}

/// The failure of a verb.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CallError {
    /// Refused with this name.
    Refused(String),
    /// The vector names a verb or an argument that is not described.
    NotUnderstood(String),
}

/// The end of a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// Because of the peer, a limit or a timeout; the kind without the protocol's name.
    Error(String),
    /// In an orderly way.
    Closed,
}

/// One difference from a vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The vector, and the delivery of its bytes.
    pub name: String,
    /// The vector's expectation.
    pub expected: String,
    /// The actual result.
    pub came: String,
}

/// The result of all vectors of one protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Frame vectors run.
    pub frames: usize,
    /// Conversations run.
    pub conversations: usize,
    /// Deliveries in which bytes were cut.
    pub splits: usize,
    /// Differences; at most one for each vector.
    pub failures: Vec<Failure>,
    /// Vectors of a protocol that is not built.
    pub not_built: usize,
}

/// Runs the vectors of a protocol in `own`, and in the folder that `ACKLINE_VECTORS` names.
///
/// # Panics
/// A vector fails, or there is none.
pub fn assert_all(own: &Path, protocol: &dyn Described) {
    let reports = reports(&folders(own), &[protocol]);
    let report = reports.get(protocol.name()).cloned().unwrap_or_default();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    let (frames, conversations) = (report.frames, report.conversations);
    assert!(
        frames > 0 && conversations > 0,
        "{frames} frames and {conversations} conversations in {}",
        own.display()
    );
}

/// Runs the vectors in `folders` and prints one line for each protocol, below its failures.
///
/// # Errors
/// `out` cannot be written.
pub fn run(
    folders: &[PathBuf],
    protocols: &[&dyn Described],
    language: &str,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let mut sound = true;
    for (name, report) in reports(folders, protocols) {
        for failure in &report.failures {
            writeln!(out, "FAILED {name}: {}", failure.name)?;
            writeln!(out, "  expected {}", failure.expected)?;
            writeln!(out, "  came     {}", failure.came)?;
        }
        if report.not_built > 0 {
            writeln!(out, "{name}: not built, {} vectors", report.not_built)?;
            continue;
        }
        sound &= report.failures.is_empty();
        writeln!(
            out,
            "{name} {language}: {} frames, {} conversations, {} splits, {} failed",
            report.frames,
            report.conversations,
            report.splits,
            report.failures.len()
        )?;
    }
    Ok(sound)
}

/// Runs the vectors in `folders`. Returns a report for each protocol that has a folder or is built.
pub fn reports(folders: &[PathBuf], protocols: &[&dyn Described]) -> BTreeMap<String, Report> {
    let mut reports = BTreeMap::new();
    for protocol in protocols {
        reports.insert(protocol.name().to_owned(), Report::default());
    }
    for folder in folders {
        let mut names = match subfolders(folder) {
            Ok(names) => names,
            Err(error) => {
                reports
                    .entry("vectors".to_owned())
                    .or_insert_with(Report::default)
                    .fail(
                        folder.display().to_string(),
                        "a folder of vectors".to_owned(),
                        error.to_string(),
                    );
                continue;
            }
        };
        names.sort();
        for name in names {
            let report: &mut Report = reports.entry(name.clone()).or_default();
            let protocol = protocols.iter().find(|protocol| protocol.name() == name);
            run_folder(&folder.join(&name), protocol.copied(), report);
        }
    }
    reports
}

/// The folders to run: `own`, and the one that `ACKLINE_VECTORS` names.
pub fn folders(own: &Path) -> Vec<PathBuf> {
    let more = std::env::var_os("ACKLINE_VECTORS").filter(|more| !more.is_empty());
    std::iter::once(own.to_owned())
        .chain(more.map(PathBuf::from))
        .collect()
}

fn subfolders(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let holds_vectors = FILES
            .iter()
            .any(|(file, _)| entry.path().join(file).is_file());
        if holds_vectors {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

const FILES: [(&str, &str); 2] = [
    ("frames.json", "vectors"),
    ("conversations.json", "conversations"),
];

impl Report {
    fn fail(&mut self, name: String, expected: String, came: String) {
        self.failures.push(Failure {
            name,
            expected,
            came,
        });
    }
}

fn run_folder(folder: &Path, protocol: Option<&dyn Described>, report: &mut Report) {
    for (file, member) in FILES {
        let path = folder.join(file);
        if !path.is_file() {
            continue;
        }
        let vectors = match read(&path, member, folder) {
            Ok(vectors) => vectors,
            Err(came) => {
                report.fail(
                    path.display().to_string(),
                    "a file of vectors".to_owned(),
                    came,
                );
                continue;
            }
        };
        let Some(protocol) = protocol else {
            report.not_built += vectors.len();
            continue;
        };
        for vector in &vectors {
            let name = vector
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or("without a name");
            let result = if member == "vectors" {
                report.frames += 1;
                run_frames(protocol, vector, &mut report.splits)
            } else {
                report.conversations += 1;
                run_conversation(protocol, vector, &mut report.splits)
            };
            if let Err(wrong) = result {
                report.fail(format!("{name}{}", wrong.place), wrong.expected, wrong.came);
            }
        }
    }
}

fn read(path: &Path, member: &str, folder: &Path) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let Value::Object(mut file) = serde_json::from_str(&text).map_err(|error| error.to_string())?
    else {
        return Err("not an object".to_owned());
    };
    known(&file, &["protocol", member, "note"]).map_err(|wrong| wrong.came)?;
    let folder = folder.file_name().map(|name| name.to_string_lossy());
    if file.get("protocol").and_then(Value::as_str) != folder.as_deref() {
        return Err("the protocol is not that of the folder".to_owned());
    }
    match file.remove(member) {
        Some(Value::Array(vectors)) => Ok(vectors),
        _ => Err(format!("no list {member}")),
    }
}

/// A difference, and its place.
struct Wrong {
    place: String,
    expected: String,
    came: String,
}

impl Wrong {
    fn new(expected: impl Display, came: impl Display) -> Self {
        Self {
            place: String::new(),
            expected: format!("{expected}"),
            came: format!("{came}"),
        }
    }

    fn at(mut self, place: &str) -> Self {
        self.place.insert_str(0, place);
        self
    }
}

fn known(map: &Map<String, Value>, members: &[&str]) -> Result<(), Wrong> {
    match map.keys().find(|key| !members.contains(&key.as_str())) {
        Some(key) => Err(Wrong::new(
            format!("one of {members:?}"),
            format!("member {key}"),
        )),
        None => Ok(()),
    }
}

fn object(value: &Value) -> Result<&Map<String, Value>, Wrong> {
    value
        .as_object()
        .ok_or_else(|| Wrong::new("an object", value))
}

fn list<'a>(value: Option<&'a Value>, what: &str) -> Result<&'a [Value], Wrong> {
    value
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .ok_or_else(|| Wrong::new(format!("a list {what}"), "none"))
}

/// BYTES of the vectors: hex, a repetition, or parts.
///
/// # Errors
/// Anything else.
fn bytes_of(value: &Value) -> Result<Vec<u8>, String> {
    let odd = || format!("not bytes: {value}");
    match value {
        Value::String(hex) => from_hex(hex).ok_or_else(odd),
        Value::Object(map) => {
            if let (Some(Value::Array(parts)), 1) = (map.get("parts"), map.len()) {
                let parts: Result<Vec<_>, _> = parts.iter().map(bytes_of).collect();
                return parts.map(|parts| parts.concat());
            }
            let (Some(unit), Some(count), 2) = (
                map.get("repeat"),
                map.get("count").and_then(Value::as_u64),
                map.len(),
            ) else {
                return Err(odd());
            };
            let count = usize::try_from(count).map_err(|_| odd())?;
            bytes_of(unit).map(|unit| unit.repeat(count))
        }
        _ => Err(odd()),
    }
}

/// Lower-case hex, as the vectors write bytes.
fn to_hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    if !hex.len().is_multiple_of(2) || !hex.is_ascii() {
        return None;
    }
    let pairs = (0..hex.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
        .collect()
}

/// The value with every repetition and list of parts written out as hex.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(map) if map.contains_key("repeat") || map.contains_key("parts") => {
            bytes_of(value).map_or_else(|_| value.clone(), |bytes| Value::String(to_hex(&bytes)))
        }
        Value::Object(map) => {
            let members = map.iter();
            members
                .map(|(key, value)| (key.clone(), plain(value)))
                .collect()
        }
        Value::Array(values) => values.iter().map(plain).collect(),
        _ => value.clone(),
    }
}

/// The value without members that are `null`: a result does not have them.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let members = map.into_iter().filter(|(_, value)| !value.is_null());
            members
                .map(|(key, value)| (key, without_nulls(value)))
                .collect()
        }
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        _ => value,
    }
}

/// Whether `came` has everything that `expected` has, and nothing where that has `null`; lists are compared in full.
/// Numbers keep their kind: 1 is not 1.0.
fn agrees(expected: &Value, came: &Value) -> bool {
    match (expected, came) {
        (Value::Object(expected), Value::Object(came)) => {
            expected.iter().all(|(key, value)| match came.get(key) {
                Some(came) => agrees(value, came),
                None => value.is_null(),
            })
        }
        (Value::Array(expected), Value::Array(came)) => {
            expected.len() == came.len()
                && expected
                    .iter()
                    .zip(came)
                    .all(|(expected, came)| agrees(expected, came))
        }
        _ => expected == came,
    }
}

fn run_frames(protocol: &dyn Described, vector: &Value, splits: &mut usize) -> Result<(), Wrong> {
    const MEMBERS: [&str; 9] = [
        "name",
        "source",
        "covers",
        "note",
        "context",
        "hex",
        "frames",
        "error",
        "canonical",
    ];
    let vector = object(vector)?;
    known(vector, &MEMBERS)?;
    let context = vector.get("context").unwrap_or(&Value::Null);
    let bytes = vector.get("hex").map_or(Err("no hex".to_owned()), bytes_of);
    let bytes = bytes.map_err(|came| Wrong::new("bytes", came))?;
    let decoded = decode(protocol, context, &bytes);
    if let Some(error) = vector.get("error") {
        if decoded.error.as_deref() != error.as_str() {
            return Err(Wrong::new(format!("error {error}"), format!("{decoded:?}")));
        }
        return Ok(());
    }
    let frames = without_nulls(plain(vector.get("frames").unwrap_or(&Value::Null)));
    let frames = list(Some(&frames), "frames")?;
    if decoded.error.is_some() || decoded.rest > 0 || decoded.frames != frames {
        return Err(Wrong::new(format!("{frames:?}"), format!("{decoded:?}")));
    }
    if vector.get("canonical") == Some(&Value::Bool(true)) {
        let encoded =
            encode(protocol, context, frames).map_err(|came| Wrong::new("bytes", came))?;
        if encoded != bytes {
            return Err(Wrong::new(to_hex(&bytes), to_hex(&encoded)));
        }
    }
    if decoded.is_whole {
        return Ok(());
    }
    for cut in cuts(bytes.len()) {
        *splits += 1;
        let prefix = decode(protocol, context, &bytes[..cut]);
        let count = prefix.frames.len();
        if prefix.error.is_some() || count > frames.len() || prefix.frames != frames[..count] {
            return Err(
                Wrong::new("only the frames inside the prefix", format!("{prefix:?}"))
                    .at(&format!(", first {cut} bytes")),
            );
        }
    }
    Ok(())
}

/// Every position inside `len` bytes; of very long ones both ends and a sample of the middle.
fn cuts(len: usize) -> impl Iterator<Item = usize> {
    const EDGE: usize = 2_048;
    let stride = (len / EDGE).max(1);
    (1..len).filter(move |at| {
        len <= 8 * EDGE || *at < EDGE || *at > len - EDGE || at.is_multiple_of(stride)
    })
}

#[cfg(test)]
mod tests;
