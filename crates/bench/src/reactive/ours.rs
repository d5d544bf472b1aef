//! The figures of the protocol: both ends of a connection in this process, with their default options.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ackline::reactive::{
    self, ConnectOptions, Connection, Demand, ListenOptions, Listener, Publication, Subscription,
};
use bytes::Bytes;

use crate::ends::{Counted, Ends, Failed, Result, counted};

/// Elements taken at once.
const BATCH: usize = 1_024;
/// Bytes of packed elements taken at once.
const MOST_BYTES: usize = 1 << 20;
const URL: &str = "reactive://127.0.0.1:0";

/// A stream to measure.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    /// Bytes of every packed element; 0 for elements of any size.
    element_size: u64,
    /// Bytes that the publisher hands over at once.
    bytes: usize,
    /// Elements in these bytes.
    elements: usize,
    /// Elements that are requested, or wait to be taken, at most.
    demand: u64,
}

/// Numbers of 8 bytes, from an array of 256 KiB.
pub(super) const PACKED: Stream = Stream {
    element_size: 8,
    bytes: 256 << 10,
    elements: 32_768,
    demand: 131_072,
};

/// Elements of 1 KiB, in batches of 256.
pub(super) const KIB: Stream = Stream {
    element_size: 0,
    bytes: 256 << 10,
    elements: 256,
    demand: 1_024,
};

/// Both ends of a connection; keep the listener.
async fn connection(ends: &Ends) -> Result<(Connection, Connection, Listener)> {
    let listening = ends
        .other
        .spawn(reactive::listen(URL, ListenOptions::default()));
    let listener = listening.await??;
    let url = listener.url().to_owned();
    let connecting = async move { reactive::connect(&url, ConnectOptions::default()).await };
    let one = ends.one.spawn(connecting).await??;
    let other = listener.accept().await?;
    Ok((one, other, listener))
}

/// Bytes of elements from the listening end to the connecting one.
pub(super) async fn one_way(time: Duration, stream: Stream, ends: &Ends) -> Result<Counted> {
    let (subscriber, publisher, _listener) = connection(ends).await?;
    let publishing = ends.other.spawn(async move {
        let request = publisher.accept().await?.ok_or("no subscription")?;
        let publication = request.accept(stream.element_size)?;
        publish(&publication, stream, time).await?;
        publication.complete()?;
        // The stream's end is sent, unless the connection is dropped before.
        publisher.ended().await;
        Ok::<_, Failed>(())
    });
    let receiving = ends.one.spawn(async move {
        let demand = Demand::automatic(stream.demand);
        let subscription = subscriber.subscribe("bench", demand).await?;
        subscription.accepted().await?;
        let begun = Instant::now();
        let bytes = match stream.element_size {
            0 => received(&subscription).await?,
            _ => received_packed(&subscription).await?,
        };
        let counted = counted(bytes, begun);
        subscriber.shutdown("measured", None).await?;
        Ok::<_, Failed>(counted)
    });
    let counted = receiving.await??;
    publishing.await??;
    Ok(counted)
}

async fn publish(publication: &Publication, stream: Stream, time: Duration) -> Result<()> {
    let (begun, array) = (Instant::now(), Bytes::from(vec![7; stream.bytes]));
    let size = stream.bytes / stream.elements;
    while begun.elapsed() < time {
        if stream.element_size > 0 {
            publication.publish_packed(&mut array.clone()).await?;
        } else {
            let each = (0..stream.elements).map(|at| array.slice(at * size..(at + 1) * size));
            publication
                .publish_all(&mut each.collect::<VecDeque<_>>())
                .await?;
        }
    }
    Ok(())
}

async fn received_packed(subscription: &Subscription) -> Result<u64> {
    let mut bytes = 0;
    while let Some(elements) = subscription.receive_packed(MOST_BYTES).await? {
        bytes += u64::try_from(elements.len())?;
    }
    Ok(bytes)
}

async fn received(subscription: &Subscription) -> Result<u64> {
    let mut bytes = 0;
    loop {
        let elements = subscription.receive_many(BATCH).await?;
        if elements.is_empty() {
            return Ok(bytes);
        }
        for element in elements {
            bytes += u64::try_from(element.bytes())?;
        }
    }
}
