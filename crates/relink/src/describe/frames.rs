//! Single frames by name: the members of each, and their bytes.

use ackline_core::described::{Args, Field, Misuse, Schema, Shape};
use ackline_core::{Payload, Sequence, Value};

use super::{EPOCH, LINK_ID, NAME, PARTS, SEQUENCE, ids_of, name_of, parameters};
use crate::ChannelId;
use crate::frame::{
    Acknowledgement, Body, EndpointBlock, Ident, Operation, Packet, Targets, Version, encode,
    encode_message,
};

const OPERATION: Field = Field::new("operation", Shape::Word(&["commit", "rollback", "close"]));
const ACKNOWLEDGEMENT: Field = Field::new(
    "acknowledgement",
    Shape::Word(&["received", "consumed", "committed", "uncommitted", "closed"]),
);
const MULTICAST: Field = Field::new("multicast", Shape::Flag);
const CHANNELS: Field = Field::new("channel_ids", Shape::List(&Shape::Bytes));
/// Of a packet of a capture that has more ids than are shown.
const COUNT: Field = Field::option("channel_id_count", Shape::U32);

pub(super) const FRAMES: &[Schema] = &[
    Schema::new("version", &[Field::new("version", Shape::U64)]),
    Schema::new(
        "endpoint",
        &[
            NAME,
            Field::new("connector_channel_id_size", Shape::U8),
            Field::new("listener_channel_id_size", Shape::U8),
            Field::new("connector_transactions", Shape::Flag),
            Field::new("listener_transactions", Shape::Flag),
            Field::new("require_old_link_id", Shape::Flag),
            Field::new("old_epoch", Shape::U64),
            Field::new("old_link_id", Shape::U64),
        ],
    ),
    Schema::new("ident", &[EPOCH, LINK_ID]),
    Schema::new("nop", &[]),
    Schema::new("ping", &[]),
    Schema::new("pong", &[]),
    Schema::new("resume", &[]),
    Schema::new("shutdown", &[]),
    Schema::new(
        "channel_operation",
        &[OPERATION, MULTICAST, CHANNELS, COUNT],
    ),
    Schema::new(
        "channel_acknowledgement",
        &[ACKNOWLEDGEMENT, MULTICAST, CHANNELS, COUNT],
    ),
    Schema::new(
        "sequence_operation",
        &[OPERATION, SEQUENCE, MULTICAST, CHANNELS, COUNT],
    ),
    Schema::new(
        "sequence_acknowledgement",
        &[ACKNOWLEDGEMENT, SEQUENCE, MULTICAST, CHANNELS, COUNT],
    ),
    Schema::new("message", &[PARTS, MULTICAST, CHANNELS, COUNT]),
];

pub(super) fn encode_frame(frame: &str, members: &Args, out: &mut Vec<u8>) -> Result<(), Misuse> {
    match frame {
        "version" => Version(members.required("version")?).encode(out),
        "ident" => Ident {
            epoch: members.required("epoch")?,
            link_id: members.required("link_id")?,
        }
        .encode(out),
        "endpoint" => endpoint_of(members)?.encode(out),
        "nop" => encode(&Packet::Nop, out),
        "ping" => encode(&Packet::Ping, out),
        "pong" => encode(&Packet::Pong, out),
        "resume" => encode(&Packet::Resume, out),
        "shutdown" => encode(&Packet::Shutdown, out),
        _ => encode_channel(frame, members, out)?,
    }
    Ok(())
}

fn endpoint_of(members: &Args) -> Result<EndpointBlock, Misuse> {
    let mut require_old_link_id = false;
    members.set_flag("require_old_link_id", &mut require_old_link_id);
    Ok(EndpointBlock {
        endpoint_name: name_of(members)?,
        parameters: parameters(members)?,
        require_old_link_id,
        wants_hints: false,
        old_epoch: members.required("old_epoch")?,
        old_link_id: members.required("old_link_id")?,
    })
}

fn encode_channel(frame: &str, members: &Args, out: &mut Vec<u8>) -> Result<(), Misuse> {
    let ids = ids_of(members.items("channel_ids"));
    let size = ids.first().map_or(0, ChannelId::len);
    let is_uniform = ids.iter().all(|id| id.len() == size);
    let (Ok(size), Ok(count), true) = (u8::try_from(size), u32::try_from(ids.len()), is_uniform)
    else {
        let text = "channel_ids are of one size, from 0 to 255 bytes";
        return Err(Misuse::of("channel_ids", text.to_owned()));
    };
    let sequence = || members.required("sequence_number").map(Sequence);
    let body = match frame {
        "message" => {
            let parts = members.items("payload").iter().map(Value::to_bytes);
            encode_message(&ids, &parts.collect::<Payload>(), out);
            return Ok(());
        }
        "channel_operation" => Body::Operation(operation_of(members)?),
        "channel_acknowledgement" => Body::Acknowledgement(acknowledgement_of(members)?),
        "sequence_operation" => Body::SequenceOperation(operation_of(members)?, sequence()?),
        _ => Body::SequenceAcknowledgement(acknowledgement_of(members)?, sequence()?),
    };
    let ids: Vec<u8> = ids.iter().flat_map(ChannelId::as_bytes).copied().collect();
    let targets = Targets::multicast(&ids, size, count);
    encode(&Packet::Channel { targets, body }, out);
    Ok(())
}

fn operation_of(members: &Args) -> Result<Operation, Misuse> {
    use Operation::{Close, Commit, Rollback};
    let name = members.text("operation");
    let all = [Commit, Rollback, Close];
    let found = all.into_iter().find(|one| one.name() == name);
    found.ok_or_else(|| Misuse::of("operation", format!("there is no operation {name:?}")))
}

fn acknowledgement_of(members: &Args) -> Result<Acknowledgement, Misuse> {
    use Acknowledgement::{Closed, Committed, Consumed, Received, Uncommitted};
    let name = members.text("acknowledgement");
    let all = [Received, Consumed, Committed, Uncommitted, Closed];
    let found = all.into_iter().find(|one| one.name() == name);
    let text = || format!("there is no acknowledgement {name:?}");
    found.ok_or_else(|| Misuse::of("acknowledgement", text()))
}
