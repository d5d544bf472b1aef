//! Conversations by the rules, and others with faults, against the naive decoder.
#![allow(clippy::arithmetic_side_effects)] // tests may panic

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

/// The bits of the choice, the lists of the peer's handshakes, the extensions that are agreed on, and the window.
type Beginning = (u8, &'static [[&'static str; 2]], &'static str, usize);

const BEGINNINGS: [Beginning; 13] = [
    (0b0010, &[], "", 0),
    (0b0011, &[], "", 0),
    (0b0110, &[], "json;ack;x-note;pub-sub", 1),
    (0b1010, &[], "batch-ack;dotnet;x-note", 3),
    (0b1011, &[], "batch-ack;dotnet;x-note", 3),
    (0b1110, &[], "pub-sub;batch-ack;ack;dotnet", 10),
    (0, &[["", ""]], "json", 0),
    (
        0,
        &[["", "pub-sub;batch-ack:count=2;x-note;x-other;dotnet"]],
        "json;batch-ack;dotnet;pub-sub;x-note",
        2,
    ),
    (
        0,
        &[["ack:a=%41", "dotnet;ack;batch-ack:max-count:5;"]],
        "json;ack;batch-ack;dotnet",
        1,
    ),
    (1, &[["", ""], ["json", ""]], "json", 0),
    (
        1,
        &[
            ["json", "batch-ack:max-count=2;dotnet;x-note"],
            ["x-note", "batch-ack:max-count=1;json;dotnet"],
        ],
        "x-note;batch-ack;json;dotnet",
        1,
    ),
    (
        1,
        &[
            ["pub-sub", "x-other;batch-ack;x-note"],
            ["x-note;pub-sub;json", "dotnet;batch-ack"],
        ],
        "x-note;pub-sub;json;dotnet;batch-ack",
        3,
    ),
    (
        1,
        &[["", "ack:b=c,d=;pub-sub"], ["ack;json", "dotnet"]],
        "ack;json;dotnet",
        1,
    ),
];

/// The head of a message, and its fragments: their bytes, and whether the length of a short one has four bytes. Another frame
/// may stand behind the first fragment. The last fragment may have a longer destination, with the same bytes.
#[derive(Debug, Clone)]
struct Shape {
    destination: &'static str,
    properties: &'static str,
    fragments: Vec<(usize, bool)>,
    between: Option<Box<Item>>,
    is_moved: bool,
}

#[derive(Debug, Clone)]
enum Item {
    Message(Shape),
    /// A message that came before comes again, counted from the last.
    Repeat(usize, Shape),
    Type(&'static str),
    Note(usize, bool),
    Command(&'static str),
    /// An acknowledgement of so many messages; of none, the last one again.
    Ack(usize),
}

fn beside() -> impl Strategy<Value = Item> {
    let commands = [
        "go",
        "Stop;k=%41,k=;",
        "subscribe;topic=t",
        "subscribe;filter=n%3EN3%3Bm~Ta,topic=u",
        "subscribe;topic=t,filter=a%26T%2520%3B",
        "unsubscribe;topic=t",
    ];
    prop_oneof![
        select(vec!["A, B", "", "C"]).prop_map(Item::Type),
        (0_usize..30, any::<bool>()).prop_map(|(len, is_large)| Item::Note(len, is_large)),
        select(commands.to_vec()).prop_map(Item::Command),
        (0_usize..4).prop_map(Item::Ack),
    ]
}

/// The most fragments of a message with which it has no more bytes than the limit.
const FRAGMENTS: usize = 3;

fn shape(is_lawful: bool) -> impl Strategy<Value = Shape> {
    let texts = (
        select(vec!["", "q", "topic/domain"]),
        select(vec!["", "n:N1;", MOVABLE]),
    );
    let most = if is_lawful { FRAGMENTS } else { 6 };
    let fragments = vec((0_usize..30, any::<bool>()), 1..=most);
    let between = proptest::option::of(beside().prop_map(Box::new));
    (texts, fragments, between, any::<bool>()).prop_map(
        move |((destination, properties), fragments, between, is_moved)| Shape {
            destination,
            properties,
            fragments,
            between,
            is_moved: is_moved && !is_lawful && (destination, properties) == ("", MOVABLE),
        },
    )
}

/// Properties that read as the length of none, behind a destination of two bytes.
const MOVABLE: &str = "\0\0";

fn item(is_lawful: bool) -> impl Strategy<Value = Item> {
    let repeat = (0_usize..4, shape(is_lawful));
    prop_oneof![
        4 => shape(is_lawful).prop_map(Item::Message),
        1 => repeat.prop_map(|(back, shape)| Item::Repeat(back, shape)),
        3 => beside(),
    ]
}

/// A peer that writes frames.
#[derive(Debug)]
struct Peer {
    table: Vec<&'static str>,
    window: usize,
    /// The factor of all payloads.
    scale: usize,
    /// Whether it keeps the rules of messages.
    is_lawful: bool,
    bytes: Vec<u8>,
    /// The numbers of its messages, and their payloads.
    messages: Vec<(u16, Vec<u8>)>,
    /// Messages of the other end: all, and the acknowledged ones.
    others: usize,
    acked: usize,
}

impl Peer {
    fn new((choice, _, table, window): Beginning, scale: usize, is_lawful: bool) -> Self {
        let is_established = choice & 2 != 0;
        Self {
            table: table.split(';').collect(),
            window,
            scale,
            is_lawful,
            bytes: Vec::new(),
            messages: Vec::new(),
            others: if is_established {
                window.min(MESSAGES)
            } else {
                0
            },
            acked: 0,
        }
    }

    fn handshakes(&mut self, lists: &[[&str; 2]], [major, minor]: [u8; 2]) {
        for (at, lists) in lists.iter().enumerate() {
            // The final one has the lower version or that of the first one.
            let version = if at == 0 || minor & 1 == 0 {
                [major, minor]
            } else {
                [1, 0]
            };
            self.bytes.extend(version);
            self.bytes.extend(b"\x09\x04peer");
            for list in lists {
                self.bytes.extend([0, u8::try_from(list.len()).unwrap()]);
                self.bytes.extend(list.bytes());
            }
        }
    }

    /// The number of an extension.
    fn id(&self, name: &str) -> Option<u8> {
        let at = self.table.iter().position(|one| *one == name)?;
        u8::try_from(at + 1).ok()
    }

    fn ack_id(&self) -> Option<u8> {
        let ids = [self.id("ack"), self.id("batch-ack")];
        ids.into_iter().flatten().min()
    }

    /// A frame: its flags, everything before its payload, and that.
    fn frame(&mut self, flags: u8, head: &[u8], payload: &[u8], is_large: bool) {
        let is_large = is_large || payload.len() > 255;
        self.bytes.push(flags | if is_large { 8 } else { 0 });
        self.bytes.extend(head);
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        self.bytes.extend(if is_large { &len } else { &len[3..] });
        self.bytes.extend(payload);
    }

    fn payload(&self, len: usize) -> Vec<u8> {
        let first = u8::try_from(self.bytes.len() % 251).unwrap();
        (0..len * self.scale)
            .map(|at| first ^ u8::try_from(at % 13).unwrap())
            .collect()
    }

    fn fragments(&mut self, number: u16, shape: &Shape) -> Vec<u8> {
        let mut head = number.to_be_bytes().to_vec();
        head.push(u8::try_from(shape.destination.len()).unwrap());
        head.extend(shape.destination.bytes());
        head.extend([0, u8::try_from(shape.properties.len()).unwrap()]);
        head.extend(shape.properties.bytes());
        let mut all = Vec::new();
        for (at, (len, is_large)) in shape.fragments.iter().enumerate() {
            let is_last = at + 1 == shape.fragments.len();
            if is_last && shape.is_moved {
                head[2] = 2;
            }
            let payload = self.payload(*len);
            self.frame(if is_last { 0 } else { 16 }, &head, &payload, *is_large);
            all.extend(payload);
            if let Some(between) = shape.between.as_ref().filter(|_| at == 0) {
                self.put(between);
            }
        }
        all
    }

    /// Writes the frames of an item, if the rules allow it.
    fn put(&mut self, item: &Item) {
        match item {
            Item::Message(shape) => {
                let is_full = self.window > 0 && self.messages.len() >= self.window;
                if is_full && self.is_lawful {
                    return;
                }
                let number = plus(FIRST, self.messages.len());
                let payload = self.fragments(number, shape);
                self.messages.push((number, payload));
            }
            Item::Repeat(back, shape) => {
                let last = self.messages.iter().rev().take(self.window);
                if let Some((number, _)) = last.clone().nth(*back) {
                    self.fragments(*number, shape);
                }
            }
            Item::Type(name) => {
                if let Some(id) = self.id("dotnet") {
                    self.frame(2, &[id], name.as_bytes(), false);
                }
            }
            Item::Note(len, is_large) => {
                if let Some(id) = self.id("x-note") {
                    let payload = self.payload(*len);
                    self.frame(2, &[id], &payload, *is_large);
                }
            }
            Item::Command(text) => self.frame(1, &[], text.as_bytes(), false),
            Item::Ack(count) => {
                self.acked = self.others.min(self.acked + count);
                if let Some(id) = self.ack_id().filter(|_| self.acked > 0) {
                    let number = plus(FIRST, self.acked - 1).to_be_bytes();
                    self.frame(2, &[id], &number, false);
                }
            }
        }
    }
}

/// The number so many messages behind this one.
fn plus(number: u16, messages: usize) -> u16 {
    let sum = (usize::from(number) - 1 + messages) % 65_535;
    u16::try_from(sum + 1).unwrap()
}

/// The choice for an end, and its peer, which has written everything.
fn conversation(is_lawful: bool) -> impl Strategy<Value = (u8, Peer)> {
    let begin = (select(BEGINNINGS.to_vec()), 0_u8..8, any::<bool>());
    let version = (1_u8..3, 0_u8..4).prop_map(|(major, minor)| [major, minor]);
    let end = proptest::option::of(select(vec!["", "enough", "n\u{f6}"]));
    (begin, version, vec(item(is_lawful), 0..10), end).prop_map(
        move |((beginning, eighths, is_wide), version, items, end)| {
            let (choice, lists, _, _) = beginning;
            let scale = if is_wide { 50 } else { 1 };
            let mut peer = Peer::new(beginning, scale, is_lawful);
            peer.handshakes(lists, version);
            for item in &items {
                peer.put(item);
            }
            if let Some(reason) = end {
                peer.frame(4, &[], reason.as_bytes(), reason.is_empty());
                peer.bytes.extend(b"\xff ignored");
            }
            let choice = choice | u8::from(is_wide) << 4 | eighths << 5;
            (choice, peer)
        },
    )
}

#[derive(Debug, Clone)]
enum Fault {
    Flip(Index, u8),
    Set(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    End(Index),
}

impl Fault {
    fn put(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let len = bytes.len();
        match self {
            Self::Flip(at, bit) => bytes[at.index(len)] ^= 1 << bit,
            Self::Set(at, byte) => bytes[at.index(len)] = *byte,
            Self::Insert(at, byte) => bytes.insert(at.index(len), *byte),
            Self::Remove(at) => drop(bytes.remove(at.index(len))),
            Self::End(at) => bytes.truncate(at.index(len)),
        }
    }
}

fn fault() -> impl Strategy<Value = Fault> {
    let at = any::<Index>;
    let byte = prop_oneof![0_u8..8, select(b";:=,%~".to_vec()), any::<u8>()];
    prop_oneof![
        3 => (at(), 0_u8..8).prop_map(|(at, bit)| Fault::Flip(at, bit)),
        2 => (at(), byte.clone()).prop_map(|(at, byte)| Fault::Set(at, byte)),
        2 => (at(), byte).prop_map(|(at, byte)| Fault::Insert(at, byte)),
        2 => at().prop_map(Fault::Remove),
        1 => at().prop_map(Fault::End),
    ]
}

/// Checks that both decoders find the same in these bytes.
#[allow(clippy::disallowed_methods)] // a test needs some instant
fn compare(choice: u8, bytes: &[u8], sizes: &[usize]) -> Reading {
    let expected = naive::read(start(choice, bytes), bytes);
    let found = run(Instant::now(), choice, bytes, sizes).reading();
    assert_eq!(found, expected, "{choice:#04x} {bytes:02x?}");
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn a_conversation_by_the_rules_is_read_as_it_was_written(
        (choice, peer) in conversation(true),
        sizes in vec(1_usize..40, 1..8),
    ) {
        let found = compare(choice, &peer.bytes, &sizes);
        prop_assert_eq!(found.error, None);
        let told = found.told.into_iter().filter_map(|told| match told {
            Told::Message(head, payload, _) => Some((head.number, payload)),
            _ => None,
        });
        prop_assert_eq!(told.collect::<Vec<_>>(), peer.messages);
        let [waiting, _] = found.waiting.unwrap();
        prop_assert_eq!(waiting, peer.others - peer.acked);
    }

    #[test]
    fn a_conversation_with_faults_is_read_by_the_rules(
        (choice, peer) in conversation(false),
        faults in vec(fault(), 0..4),
        sizes in vec(1_usize..40, 1..8),
    ) {
        let mut bytes = peer.bytes;
        for fault in &faults {
            fault.put(&mut bytes);
        }
        compare(choice, &bytes, &sizes);
    }

    #[test]
    fn commands_that_are_nearly_sound_are_read_by_the_rules(
        text in "(subscribe|unsubscribe|[a-c!]?);?((topic|filter|a|b c)?[=:]?(%3[A-F]|%2[0-9A]|%7E|%C3%A4|%C3|%|[NDTab0-9.+-]){0,6},?){0,4};?;?",
        filter in filter(),
    ) {
        let escaped: Vec<_> = filter.bytes().map(|byte| format!("%{byte:02x}")).collect();
        for text in [text, format!("subscribe;topic=t,filter={}", escaped.concat())] {
            let mut peer = Peer::new(WITH_TOPICS, 1, true);
            peer.frame(1, &[], text.as_bytes(), true);
            compare(WITH_TOPICS.0, &peer.bytes, &[peer.bytes.len()]);
        }
    }

    #[test]
    fn handshakes_that_are_nearly_sound_are_read_by_the_rules(
        lists in [lists(), lists()],
        choice in 0_u8..2,
    ) {
        let lists = lists.each_ref().map(|lists| lists.each_ref().map(String::as_str));
        let mut peer = Peer::new(BEGINNINGS[0], 1, true);
        peer.handshakes(&lists, [1, 0]);
        compare(choice, &peer.bytes, &[peer.bytes.len()]);
    }
}

/// An end with `pub-sub` and large limits.
const WITH_TOPICS: Beginning = (0b1_1110, &[], "pub-sub;batch-ack;ack;dotnet", 10);

fn filter() -> impl Strategy<Value = String> {
    let number = "[ND][-+]?([0-9]{1,2}|922337203685477580[78])(\\.[0-9]{0,2})?";
    let text = "T?(%[0-7][0-9a-f]|%C3%A4|%C3|[a-c]){0,2}";
    let value = prop_oneof![number, text];
    let condition = ("[a-c](=|!=|<|<=|>|>=|~|&)", value);
    let sound = vec(condition.prop_map(|(front, value)| front + &value), 1..3);
    let other = "([a-c]?[=<>!~&:;,]{0,2}[NDT]?(%[0-9A-F]{2})?[-+0-9.%]{0,3}[;,]?){0,4}";
    prop_oneof![2 => sound.prop_map(|all| all.join(";")), 1 => other]
}

/// The lists of a handshake: names and counts that have a meaning, and others.
fn lists() -> impl Strategy<Value = [String; 2]> {
    let sound =
        "((batch-ack|ack|json|x-note|pub-sub|dotnet|q)(:(max-count|count|k)[=:][0-9]{1,2})?;){0,4}";
    let other = "((batch-ack|json|q)?:?((count|batch-max|MessagesPerAck|k)?[=:]?(%3[0-9A]|%|[0-9]){0,5},?){0,2}[;,]?){0,3}";
    let list = || prop_oneof![3 => sound, 2 => Just(String::new()), 1 => other];
    [list(), list()]
}

#[test]
fn seeds_with_one_fault_are_read_by_the_rules() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/micromsg_receive");
    for seed in std::fs::read_dir(seeds).unwrap() {
        let seed = std::fs::read(seed.unwrap().path()).unwrap();
        let (choice, bytes) = seed.split_first().unwrap();
        for at in 0..bytes.len() {
            compare(*choice, &bytes[..at], &[bytes.len()]);
            for bit in 0..8 {
                let mut bytes = bytes.to_vec();
                bytes[at] ^= 1 << bit;
                compare(*choice, &bytes, &[bytes.len()]);
            }
        }
    }
}
