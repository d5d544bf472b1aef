//! The runner of the conformance vectors: frame vectors and conversations, as JSON, for any protocol.
//!
//! Every frame vector is decoded whole and at every strict prefix. Every conversation is run with
//! its bytes delivered whole, cut in two at every position of each `recv`, and byte by byte, on a
//! virtual clock. A member that the runner does not know is a failure. The format:
//! `tests/vectors/README.md`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Map, Value};

mod conversation;
mod machine;

use conversation::run_conversation;
pub use machine::{Machine, Role};

/// The stateless side of a protocol: bytes to frames and back.
pub trait FrameCodec {
    /// Decodes as many whole frames as `bytes` hold.
    fn decode(&self, context: &Value, bytes: &[u8]) -> Decoded;

    /// Encodes `frames` in the canonical way.
    ///
    /// # Errors
    /// A frame has a member that is not understood.
    fn encode(&self, context: &Value, frames: &[Value]) -> Result<Vec<u8>, String>;

    /// Whether a strict prefix of a vector yields the frames wholly inside it; not so for whole texts.
    fn has_prefix_rule(&self, _context: &Value) -> bool {
        true
    }
}

/// The result of decoding some bytes. Bytes are lower-case hex strings.
#[derive(Debug, Clone, Default)]
pub struct Decoded {
    /// The whole frames, in order.
    pub frames: Vec<Value>,
    /// Bytes after the last whole frame that wait for more.
    pub rest: usize,
    /// The kind of the decoder's error, without the protocol's name.
    pub error: Option<String>,
}

/// One end of a protocol on a virtual clock.
pub trait Endpoint {
    /// The application calls `verb`.
    ///
    /// # Errors
    /// [`CallError`]: refused, or not understood.
    fn call(
        &mut self,
        now: Instant,
        verb: &str,
        args: &Map<String, Value>,
    ) -> Result<Value, CallError>;
    /// Bytes arrive.
    fn receive(&mut self, now: Instant, bytes: &[u8]);
    /// The transport has ended.
    fn eof(&mut self, now: Instant);
    /// When the next timer is due.
    fn next_timeout(&self) -> Option<Instant>;
    /// The timers due at `now` fire.
    fn handle_timeout(&mut self, now: Instant);
    /// Takes all pending output.
    fn take_output(&mut self, now: Instant, into: &mut Vec<u8>);
    /// The events since the last call.
    fn take_events(&mut self) -> Vec<Value>;
    /// The end of the endpoint's transport, if it has ended; a new one begins without an end.
    fn end(&self) -> Option<End>;
    /// The highest number of a connection so far, from 1: a listener may have several.
    fn connections(&self) -> u64 {
        1
    }
    /// Selects the connection for the following steps, except calls, events and timers.
    fn select(&mut self, connection: u64) {
        let _ = connection;
    }
}

/// The reason a verb failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// Refused with this name.
    Refused(String),
    /// The vector names a verb or an argument that the adapter does not know.
    NotUnderstood(String),
}

/// The end of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Because of the peer, a limit or a timeout; the kind without the protocol's name.
    Error(String),
    /// In an orderly way.
    Closed,
}

/// A protocol as the runner sees it.
pub trait Protocol: FrameCodec {
    /// The name of its folder.
    fn name(&self) -> &'static str;

    /// An endpoint for `role`, with `config` on top of the vectors' defaults.
    ///
    /// # Errors
    /// A role or a member of the config is not understood.
    fn endpoint(
        &self,
        role: &str,
        config: &Map<String, Value>,
    ) -> Result<Box<dyn Endpoint>, String>;

    /// The context in which that role's output is decoded.
    fn output_context(&self, role: &str, config: &Map<String, Value>) -> Value;
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

/// Runs the vectors in `folders` and prints one line for each protocol, below its failures.
///
/// # Errors
/// `out` cannot be written.
pub fn run(
    folders: &[PathBuf],
    protocols: &[&dyn Protocol],
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
pub fn reports(folders: &[PathBuf], protocols: &[&dyn Protocol]) -> BTreeMap<String, Report> {
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

fn run_folder(folder: &Path, protocol: Option<&dyn Protocol>, report: &mut Report) {
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
pub fn bytes_of(value: &Value) -> Result<Vec<u8>, String> {
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
pub fn to_hex(bytes: &[u8]) -> String {
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

/// The value with every repetition and list of parts written out as hex, and `null` members left out.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(map) if map.contains_key("repeat") || map.contains_key("parts") => {
            bytes_of(value).map_or_else(|_| value.clone(), |bytes| Value::String(to_hex(&bytes)))
        }
        Value::Object(map) => {
            let members = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                members
                    .map(|(key, value)| (key.clone(), plain(value)))
                    .collect(),
            )
        }
        Value::Array(values) => Value::Array(values.iter().map(plain).collect()),
        _ => value.clone(),
    }
}

/// Whether `came` has everything that `expected` has; lists are compared in full.
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

fn run_frames(protocol: &dyn Protocol, vector: &Value, splits: &mut usize) -> Result<(), Wrong> {
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
    let decoded = protocol.decode(context, &bytes);
    if let Some(error) = vector.get("error") {
        if decoded.error.as_deref() != error.as_str() {
            return Err(Wrong::new(format!("error {error}"), format!("{decoded:?}")));
        }
        return Ok(());
    }
    let frames = plain(vector.get("frames").unwrap_or(&Value::Null));
    let frames = list(Some(&frames), "frames")?;
    if decoded.error.is_some() || decoded.rest > 0 || decoded.frames != frames {
        return Err(Wrong::new(format!("{frames:?}"), format!("{decoded:?}")));
    }
    if vector.get("canonical") == Some(&Value::Bool(true)) {
        let encoded = protocol
            .encode(context, frames)
            .map_err(|came| Wrong::new("bytes", came))?;
        if encoded != bytes {
            return Err(Wrong::new(to_hex(&bytes), to_hex(&encoded)));
        }
    }
    if !protocol.has_prefix_rule(context) {
        return Ok(());
    }
    for cut in cuts(bytes.len()) {
        *splits += 1;
        let prefix = protocol.decode(context, &bytes[..cut]);
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
