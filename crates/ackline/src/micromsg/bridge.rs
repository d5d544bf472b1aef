//! A bridge between two connections, for proxies: messages, commands, subscriptions and frames of extensions go on by their
//! names, without a look into their bytes (REQ-MM-25).
//!
//! Messages are acknowledged to their sender once their receiver has acknowledged them, and a window that is full holds back
//! its sender. Messages keep their order, and so do commands and frames of extensions; between these three there is none.

use std::sync::Arc;

use ackline_micromsg::session::{Arrival, Received, Session, Wait};
use ackline_micromsg::{Error, Outbound, refusal};
use bytes::Bytes;
use tokio::sync::mpsc;

use super::connection::Connection;
use crate::watch::unless_blocked;

/// Passes everything on between two connections, both ways, until one of them ends in order. Both need the policy
/// `manual`, or a message would be acknowledged before its receiver has it; where the receiver has no acknowledgements, it
/// is acknowledged once it is sent. Neither connection is closed: do that when this returns. Must run inside a tokio runtime.
///
/// # Errors
/// `extension_not_negotiated`: one end sends a frame of an extension, or a .NET type, that the other one does not have.
/// [`Error::Failed`], [`Error::Ended`]: a connection has failed, so messages may be unacknowledged.
pub async fn bridge(left: &Connection, right: &Connection) -> Result<(), Error> {
    let done = tokio::try_join!(one_way(left, right), one_way(right, left));
    match done {
        Err(Some(error)) => Err(error),
        Ok(_) | Err(None) => Ok(()),
    }
}

/// `None`: it has ended in order.
type Done = Result<(), Option<Error>>;

async fn one_way(from: &Connection, to: &Connection) -> Done {
    let (sent, acknowledging) = mpsc::unbounded_channel();
    let all = tokio::try_join!(
        messages(from, to, sent),
        acknowledge(from, to, acknowledging),
        commands(from, to),
        extensions(from, to),
    );
    all.map(|_| ())
}

/// Positions of a message on both connections.
type Positions = (u64, u64);

/// Passes messages on. As many wait for their acknowledgement as the sender's window says.
async fn messages(
    from: &Connection,
    to: &Connection,
    sent: mpsc::UnboundedSender<Positions>,
) -> Done {
    loop {
        let some = from.receive_some(MOST_MESSAGES, MOST_BYTES).await?;
        if some.is_empty() {
            return ended_behind(to).await;
        }
        for Received { position, message } in some {
            let outbound = Outbound {
                destination: message.destination(),
                properties: message.raw_properties(),
                dotnet_type: message.dotnet_type.as_deref(),
            };
            let payload = message.payload().to_bytes();
            let at = verb(to, |session| session.send(outbound, &payload)).await?;
            // The other half lives as long as this one.
            let _ = sent.send((position, at));
        }
    }
}

/// Messages that were passed on may still be on their way: acknowledgements for them are not heard any more.
async fn ended_behind(to: &Connection) -> Done {
    let last = to.stats().sent;
    match to.acknowledged(last).await {
        Ok(()) => Err(None),
        Err(Error::Usage(error)) if error == refusal::EXTENSION_NOT_NEGOTIATED => Err(None),
        Err(error) => Err(Some(error)),
    }
}

async fn acknowledge(
    from: &Connection,
    to: &Connection,
    mut sent: mpsc::UnboundedReceiver<Positions>,
) -> Done {
    while let Some((position, at)) = sent.recv().await {
        match to.acknowledged(at).await {
            Ok(()) => {}
            Err(Error::Usage(error)) if error == refusal::EXTENSION_NOT_NEGOTIATED => {}
            Err(error) => return Err(Some(error)),
        }
        // It may have ended, and it may have no acknowledgements.
        let _ = from.ack(position);
    }
    Ok(())
}

async fn commands(from: &Connection, to: &Connection) -> Done {
    while let Some(arrival) = from.receive_command().await? {
        verb(to, |session| match &arrival {
            Arrival::Subscribe(one) => session.subscribe(&one.topic, one.filter_text.as_deref()),
            Arrival::Unsubscribe(topic) => session.unsubscribe(topic),
            Arrival::Command(command) => session.command(&command.name, &command.properties),
        })
        .await?;
    }
    Ok(())
}

async fn extensions(from: &Connection, to: &Connection) -> Done {
    while let Some((name, payload)) = from.receive_extension().await? {
        let (name, payload): (Arc<str>, Bytes) = (name, payload);
        verb(to, |session| session.send_extension(&name, &payload)).await?;
    }
    Ok(())
}

/// Calls a verb that sends a frame, once there is room.
async fn verb<R>(
    to: &Connection,
    mut verb: impl FnMut(&mut Session) -> Result<R, Error>,
) -> Result<R, Error> {
    let called = to.link().when(Wait::Room.key(), |session, _| {
        unless_blocked::<Session, R>(verb(session))
    });
    called.await?
}

/// Messages that are taken at once.
const MOST_MESSAGES: usize = 256;
/// Bytes of their payloads, about.
const MOST_BYTES: usize = 1 << 20;
