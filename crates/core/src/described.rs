//! A protocol as data: its roles, verbs, events and frames by name, with the shape of each value.
//!
//! A protocol describes itself once, in its own crate ([`Described`]). The runner of the conformance vectors, the
//! machine of Python and `ackline decode` come from that description. It stands beside the machines: drivers
//! call those directly, and no value of this module is made on their way.

mod args;
mod decoder;
mod machine;
mod options;
mod shape;

pub use args::{Args, Misuse};
pub use decoder::{Decoder, Inspecting, side};
pub use machine::{Driven, Event, Failure, Machine, Vocabulary};
pub use options::OptionSet;
pub use shape::{Field, Schema, Shape, Source};

use std::time::Instant;

use crate::Value;

/// One end of a protocol.
#[derive(Debug, Clone, Copy)]
pub struct Role {
    /// Its name.
    pub name: &'static str,
    /// The options of its machine.
    pub options: OptionSet,
    /// The verbs that the application may call, with their arguments.
    pub verbs: &'static [Schema],
    /// The events that the application is told, with their members.
    pub events: &'static [Schema],
}

/// A protocol that says what it has.
pub trait Described: Sync {
    /// The name: that of its URLs, and of its folder of vectors.
    fn name(&self) -> &'static str;

    /// Its ends.
    fn roles(&self) -> &'static [Role];

    /// Its frames, with their members.
    fn frames(&self) -> &'static [Schema];

    /// The options of a [`decoder`](Self::decoder).
    fn decoding(&self) -> OptionSet;

    /// The machine of a role of [`roles`](Self::roles), at the beginning of its transport.
    ///
    /// # Errors
    /// The options contradict each other.
    fn open(&self, role: &str, now: Instant, options: &Args) -> Result<Box<dyn Machine>, Misuse>;

    /// A reader of the frames that `sender` sent.
    ///
    /// # Errors
    /// There is no such sender.
    fn decoder(&self, sender: Option<&str>, options: &Args) -> Result<Box<dyn Decoder>, Misuse>;

    /// Appends the bytes of a frame of [`frames`](Self::frames), in the canonical encoding.
    ///
    /// # Errors
    /// The members contradict each other.
    fn encode(&self, frame: &str, members: &Args, out: &mut Vec<u8>) -> Result<(), Misuse>;

    /// The same on a connection of which `context`, the options of a [`decoder`](Self::decoder), says more: a frame may have
    /// another form there.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    fn encode_in(
        &self,
        context: &Args,
        frame: &str,
        members: &Args,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        let _ = context;
        self.encode(frame, members, out)
    }
}

impl Role {
    /// The name of a verb and its arguments, read from outside.
    ///
    /// # Errors
    /// The verb or an argument is not understood.
    pub fn arguments<S: Source>(
        &self,
        verb: &str,
        given: Vec<(String, S)>,
    ) -> Result<(&'static str, Args), Misuse> {
        let found = self.verbs.iter().find(|one| one.name == verb);
        let found = found.ok_or_else(|| {
            let names = self.verbs.iter().map(|one| one.name);
            Misuse::unknown("verb", verb, self.name, names)
        })?;
        Ok((found.name, found.arguments(given)?))
    }
}

/// A machine, and the role whose verbs it has.
pub struct Opened {
    /// The role.
    pub role: &'static Role,
    /// The machine.
    pub machine: Box<dyn Machine>,
}

impl Opened {
    /// Calls a verb.
    ///
    /// # Errors
    /// The verb or an argument is not understood, or the machine refuses.
    pub fn call<S: Source>(
        &mut self,
        now: Instant,
        verb: &str,
        given: Vec<(String, S)>,
    ) -> Result<Value, Misuse> {
        let (verb, args) = self.role.arguments(verb, given)?;
        self.machine.call(now, verb, &args)
    }
}

impl dyn Described + '_ {
    /// The role of that name.
    ///
    /// # Errors
    /// There is none: the error lists those that there are.
    pub fn role(&self, name: &str) -> Result<&'static Role, Misuse> {
        let known = self.roles();
        let found = known.iter().find(|one| one.name == name);
        found.ok_or_else(|| {
            Misuse::unknown("role", name, self.name(), known.iter().map(|one| one.name))
        })
    }

    /// The machine of a role, with options from outside.
    ///
    /// # Errors
    /// The role or an option is not understood.
    pub fn opened<S: Source>(
        &self,
        role: &str,
        now: Instant,
        given: Vec<(String, S)>,
    ) -> Result<Opened, Misuse> {
        let role = self.role(role)?;
        let options = role.options.read(given)?;
        let machine = self.open(role.name, now, &options)?;
        Ok(Opened { role, machine })
    }

    /// A reader of a sender's frames, with options from outside.
    ///
    /// # Errors
    /// The sender or an option is not understood.
    pub fn decoding_of<S: Source>(
        &self,
        sender: Option<&str>,
        given: Vec<(String, S)>,
    ) -> Result<Box<dyn Decoder>, Misuse> {
        let options = self.decoding().read(given)?;
        self.decoder(sender, &options)
    }

    /// Appends the bytes of frames from outside, each with its members and `type`, its name. `context` has options of
    /// a decoder.
    ///
    /// # Errors
    /// A frame, a member or an option is not understood.
    pub fn encode_from<S: Source>(
        &self,
        context: Vec<(String, S)>,
        frames: &[S],
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        let context = self.decoding().read(context)?;
        frames.iter().try_for_each(|frame| {
            let (name, members) = Schema::read_one_of(self.frames(), self.name(), frame)?;
            self.encode_in(&context, name, &members, out)
        })
    }
}
