//! A bridge between two connections, for proxies: messages, commands, subscriptions and frames of extensions go on in their
//! order, without a look into their bytes (REQ-MM-25).
//!
//! Messages are acknowledged to their sender once their receiver has acknowledged them, and a window that is full holds back
//! its sender.

use ackline_core::UsageError;
use ackline_micromsg::session::{Arrival, ExtensionFrame, Next, Received, Session, Wait};
use ackline_micromsg::text::{Extension, write_extensions};
use ackline_micromsg::{AckPolicy, Config, Error, Negotiation, Outbound, Proposal, refusal};
use tokio::sync::mpsc;

use super::connection::{Connection, LAST_BYTES};
use super::options::ConnectOptions;
use crate::watch::unless_blocked;

/// Changes the settings of connections for proxies: the application answers the handshake and acknowledges messages, and
/// frames of extensions that were not agreed on are passed on.
pub fn for_proxy(link: &mut Config) {
    link.ack_policy = AckPolicy::Manual;
    link.terms.negotiation = Negotiation::Manual;
    link.terms.forwards = true;
}

/// Connects to a server in the name of a client, and leads both handshakes to their ends: the server is offered what the
/// client offers, the client what the server offers, and the server is told the client's decision. So both connections have
/// the same extensions with the same numbers, also such as the proxy does not know, and [`bridge`] can join them.
///
/// `client` is a connection of a listener whose options are [for a proxy](for_proxy) and whose handshake has not ended. Of the
/// `options` the name and the extensions are not used. A refusal by one end is passed on to the other. Must run inside a tokio
/// runtime.
///
/// # Errors
/// `nothing_proposed`: the client's handshake is not left to the application. [`Error::Open`]: the server cannot be reached;
/// `client` is not ended then. [`Error::Failed`], [`Error::Ended`]: one of both ends refuses, and both connections are over.
pub async fn mirror(
    client: &Connection,
    url: &str,
    mut options: ConnectOptions,
) -> Result<Connection, Error> {
    let asked = client.proposal().await?;
    for_proxy(&mut options.link);
    options.offer.name = Some(asked.identity.clone());
    let [required, optional] = lists(&asked);
    options.offer.required_extensions = Some(required);
    options.offer.optional_extensions = Some(optional);
    let server = match super::connect(url, options).await {
        Ok(server) => server,
        Err(error) => return Err(refused(client, error).await),
    };
    let agreed = async {
        let offered = server.proposal().await?;
        client.answer(offered.required, offered.optional)?;
        client.connected().await
    };
    if let Err(error) = agreed.await {
        return Err(refused(&server, error).await);
    }
    let chosen = client.extensions();
    if let Err(error) = server.answer(chosen, Vec::new()) {
        return Err(refused(client, error).await);
    }
    Ok(server)
}

/// The lists of a handshake as text. Of two entries with one name the first counts.
fn lists(asked: &Proposal) -> [String; 2] {
    [&asked.required, &asked.optional].map(|list| {
        let mut once: Vec<Extension> = Vec::new();
        for one in list {
            if once.iter().all(|other| other.name != one.name) {
                once.push(one.clone());
            }
        }
        write_extensions(&once)
    })
}

/// One end has refused: the other one is told the reason, unless nobody was reached. It has gone out when this returns.
async fn refused(other: &Connection, error: Error) -> Error {
    let reason = match &error {
        Error::Open(_) => return error,
        Error::Failed(reason) => reason.to_string(),
        error => error.to_string(),
    };
    // It may be over.
    let _ = other.fail(&reason);
    other.link().close_within(LAST_BYTES);
    other.ended().await;
    error
}

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
        pass_on(from, to, sent),
        acknowledge(from, to, acknowledging)
    );
    all.map(|_| ())
}

/// Positions of a message on both connections.
type Positions = (u64, u64);

/// Passes everything on. As many messages wait for their acknowledgement as the sender's window says.
async fn pass_on(
    from: &Connection,
    to: &Connection,
    sent: mpsc::UnboundedSender<Positions>,
) -> Done {
    while let Some(next) = from.receive_next(MOST_MESSAGES, MOST_BYTES).await? {
        match next {
            Next::Messages(messages) => {
                for received in messages {
                    let positions = message(received, to).await?;
                    // The other half lives as long as this one.
                    let _ = sent.send(positions);
                }
            }
            Next::Arrival(arrival) => command(&arrival, to).await?,
            Next::Extension(frame) => extension(&frame, to).await?,
        }
    }
    ended_behind(to).await
}

async fn message(received: Received, to: &Connection) -> Result<Positions, Error> {
    let Received { position, message } = received;
    let outbound = Outbound {
        destination: message.destination(),
        properties: message.raw_properties(),
        dotnet_type: message.dotnet_type.as_deref(),
    };
    let payload = message.payload().to_bytes();
    let at = verb(to, |session| session.send(outbound, &payload)).await?;
    Ok((position, at))
}

async fn command(arrival: &Arrival, to: &Connection) -> Result<(), Error> {
    verb(to, |session| match arrival {
        Arrival::Subscribe(one) => session.subscribe(&one.topic, one.filter_text.as_deref()),
        Arrival::Unsubscribe(topic) => session.unsubscribe(topic),
        Arrival::Command(command) => session.command(&command.name, &command.properties),
    })
    .await
}

async fn extension(frame: &ExtensionFrame, to: &Connection) -> Result<(), Error> {
    let ExtensionFrame { id, name, payload } = frame;
    verb(to, |session| {
        if name.is_empty() {
            session.forward_extension(*id, payload)
        } else {
            session.send_extension(name, payload)
        }
    })
    .await
}

/// Messages that were passed on may still be on their way: acknowledgements for them are not heard any more.
async fn ended_behind(to: &Connection) -> Done {
    let last = to.stats().sent;
    match to.acknowledged(last).await {
        Ok(()) => Err(None),
        Err(Error::Usage(error)) if has_none(error) => Err(None),
        Err(error) => Err(Some(error)),
    }
}

fn has_none(error: UsageError) -> bool {
    error == refusal::EXTENSION_NOT_NEGOTIATED
}

async fn acknowledge(
    from: &Connection,
    to: &Connection,
    mut sent: mpsc::UnboundedReceiver<Positions>,
) -> Done {
    while let Some((position, at)) = sent.recv().await {
        match to.acknowledged(at).await {
            Ok(()) => {}
            Err(Error::Usage(error)) if has_none(error) => {}
            Err(error) => return Err(Some(error)),
        }
        // It may have ended, and it may have no acknowledgements.
        let _ = from.ack(position);
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
