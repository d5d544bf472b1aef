//! Extensions whose messages are values of an application's own type.

use ackline_core::UsageError;

use crate::message::{ExtensionMessage, Field, types};
use crate::{Config, refusal};

/// Makes a value of the fields of a message; an error is a sentence.
type Decode<M> = Box<dyn Fn(&[Field]) -> Result<M, String> + Send + Sync>;
/// Makes the fields of a value, if the message stands for it.
type Encode<M> = Box<dyn Fn(&M) -> Option<Vec<Field>> + Send + Sync>;

/// The extensions that an application supports: their ids, and how each of their messages becomes a value of `M` and back.
/// Those that the peer supports too are active (REQ-RS-8).
pub struct Extensions<M> {
    ids: Vec<u64>,
    entries: Vec<Entry<M>>,
}

/// A message and its way to a value and back.
struct Entry<M> {
    message: ExtensionMessage,
    decode: Decode<M>,
    encode: Encode<M>,
}

impl<M> Default for Extensions<M> {
    fn default() -> Self {
        Self {
            ids: Vec::new(),
            entries: Vec::new(),
        }
    }
}

impl<M> std::fmt::Debug for Extensions<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extensions")
            .field("ids", &self.ids)
            .finish_non_exhaustive()
    }
}

impl<M> Extensions<M> {
    /// Supports an extension, which may have no messages of its own.
    pub fn support(&mut self, extension: u64) {
        if !self.ids.contains(&extension) {
            self.ids.push(extension);
        }
    }

    /// Supports an extension with this message. `encode` answers nothing for values that are another message's.
    ///
    /// # Errors
    /// `invalid_message_type`: the type is below 64, or another message has it.
    pub fn message(
        &mut self,
        message: ExtensionMessage,
        decode: impl Fn(&[Field]) -> Result<M, String> + Send + Sync + 'static,
        encode: impl Fn(&M) -> Option<Vec<Field>> + Send + Sync + 'static,
    ) -> Result<(), UsageError> {
        let message_type = message.message_type;
        let is_taken = |entry: &Entry<M>| entry.message.message_type == message_type;
        if message_type < types::FIRST_OF_EXTENSIONS || self.entries.iter().any(is_taken) {
            return Err(refusal::INVALID_MESSAGE_TYPE);
        }
        self.support(message.extension);
        self.entries.push(Entry {
            message,
            decode: Box::new(decode),
            encode: Box::new(encode),
        });
        Ok(())
    }

    /// Puts them into the settings of a connection.
    pub fn configure(&self, config: &mut Config) {
        config.extensions.clone_from(&self.ids);
        let messages = self.entries.iter().map(|entry| entry.message.clone());
        config.extension_messages = messages.collect();
    }

    /// The value of a message.
    ///
    /// # Errors
    /// The fields make no value, in words.
    pub fn decode(&self, message_type: u64, fields: &[Field]) -> Result<M, String> {
        let mut entries = self.entries.iter();
        match entries.find(|entry| entry.message.message_type == message_type) {
            Some(entry) => (entry.decode)(fields),
            None => Err(format!("no extension has a message of type {message_type}")),
        }
    }

    /// The message that stands for a value: its type and its fields.
    pub fn encode(&self, value: &M) -> Option<(u64, Vec<Field>)> {
        let mut entries = self.entries.iter();
        entries.find_map(|entry| {
            let fields = (entry.encode)(value)?;
            Some((entry.message.message_type, fields))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::FieldKind;

    #[derive(Debug, PartialEq)]
    enum Value {
        Ping(u64),
        Name(String),
    }

    fn message(message_type: u64, kind: FieldKind) -> ExtensionMessage {
        ExtensionMessage {
            message_type,
            extension: 7,
            fields: vec![kind],
        }
    }

    fn extensions() -> Extensions<Value> {
        let mut extensions = Extensions::default();
        let ping = extensions.message(
            message(64, FieldKind::Varint),
            |fields| match fields {
                [Field::Varint(number)] => Ok(Value::Ping(*number)),
                _ => Err("a ping has a number".to_owned()),
            },
            |value| match value {
                Value::Ping(number) => Some(vec![Field::Varint(*number)]),
                Value::Name(_) => None,
            },
        );
        let name = extensions.message(
            message(65, FieldKind::String),
            |fields| match fields {
                [Field::String(name)] => Ok(Value::Name(name.clone())),
                _ => Err("a name is a text".to_owned()),
            },
            |value| match value {
                Value::Name(name) => Some(vec![Field::String(name.clone())]),
                Value::Ping(_) => None,
            },
        );
        assert_eq!((ping, name), (Ok(()), Ok(())));
        extensions
    }

    #[test]
    fn a_value_is_its_own_message_and_comes_back() {
        let extensions = extensions();
        for value in [Value::Ping(5), Value::Name("x".to_owned())] {
            let message = extensions.encode(&value);
            let back = message.map(|(kind, fields)| extensions.decode(kind, &fields));
            assert_eq!(back, Some(Ok(value)));
        }
        assert!(extensions.decode(64, &[]).is_err());
        assert!(extensions.decode(66, &[]).is_err());
    }

    #[test]
    fn types_are_those_of_extensions_and_have_one_message_each() {
        let mut extensions = extensions();
        for wrong in [63, 64] {
            let refused = extensions.message(
                message(wrong, FieldKind::Varint),
                |_| Err(String::new()),
                |_| None,
            );
            assert_eq!(refused, Err(refusal::INVALID_MESSAGE_TYPE));
        }
    }

    #[test]
    fn a_connection_is_told_all_of_them() {
        let mut extensions = extensions();
        extensions.support(3);
        extensions.support(7);
        let mut config = Config::default();
        extensions.configure(&mut config);
        let types = config.extension_messages.iter().map(|it| it.message_type);
        assert_eq!(types.collect::<Vec<_>>(), [64, 65]);
        assert_eq!(config.extensions, [7, 3]);
    }
}
