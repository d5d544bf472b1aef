//! The events of a connection by name.

use ackline_core::Value;
use ackline_core::described::Event as Told;

use crate::frame::{self, Version};
use crate::text::write_extensions;
use crate::{Connected, Event, Message, Proposal};

pub(super) fn told(event: Event) -> Told {
    let text = Value::Text;
    match event {
        Event::Proposed(proposal) => proposed(proposal),
        Event::Connected(made) => connected(made),
        Event::Message(came) => message(&came),
        Event::Acknowledged { through } => {
            Told::new("acknowledged", vec![("through", u64::from(through).into())])
        }
        Event::Command(command) => {
            let properties = frame::pairs_of(&command.properties);
            let members = vec![("name", text(command.name)), ("properties", properties)];
            Told::new("command", members)
        }
        Event::Extension { name, payload } => {
            let members = vec![
                ("name", text(name.to_string())),
                ("payload", payload.into()),
            ];
            Told::new("extension", members)
        }
        Event::Subscribe(one) => {
            let mut members = vec![("topic", text(one.topic))];
            members.extend(one.filter_text.map(|filter| ("filter", text(filter))));
            Told::new("subscribe", members)
        }
        Event::Unsubscribe { topic } => Told::new("unsubscribe", vec![("topic", text(topic))]),
        Event::Error { message } => Told::new("error", vec![("message", text(message))]),
    }
}

fn proposed(proposal: Proposal) -> Told {
    let lists = [&proposal.required, &proposal.optional];
    let [required, optional] = lists.map(|list| Value::Text(write_extensions(list)));
    let [major, minor] = numbers(proposal.version);
    let members = vec![
        major,
        minor,
        ("identity", Value::Text(proposal.identity)),
        ("required_extensions", required),
        ("optional_extensions", optional),
    ];
    Told::new("proposed", members)
}

fn connected(made: Connected) -> Told {
    let [major, minor] = numbers(made.version);
    let extensions = made.extensions.into_iter().map(Value::Text).collect();
    let members = vec![
        major,
        minor,
        ("identity", Value::Text(made.identity)),
        ("extensions", Value::List(extensions)),
    ];
    Told::new("connected", members)
}

fn message(came: &Message) -> Told {
    let text = |text: &str| Value::Text(text.to_owned());
    let mut members = vec![
        ("sequence_number", u64::from(came.sequence_number).into()),
        ("destination", text(came.destination())),
        ("properties", text(came.raw_properties())),
        ("payload", came.payload().to_bytes().into()),
    ];
    let dotnet_type = came.dotnet_type.as_deref();
    members.extend(dotnet_type.map(|it| ("dotnet_type", text(it))));
    Told::new("message", members)
}

fn numbers(version: Version) -> [(&'static str, Value); 2] {
    [
        ("major_version", u64::from(version.major).into()),
        ("minor_version", u64::from(version.minor).into()),
    ]
}
