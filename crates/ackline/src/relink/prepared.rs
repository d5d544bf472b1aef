//! Transactions whose messages other processes have sent and handed over: decided together.
//!
//! ```text
//! state 1 ─► adopted ─┐                        ┌─► commit ─► outcome ─► shut down
//! state 2 ─► adopted ─┼─► all of them are there ─► commit ─► outcome ─► shut down
//! state n ─► …        ┘         │
//!                               └── one is not: none is committed
//! ```
//!
//! Each transaction has a link of its own, so that each is committed by itself: between the first and the
//! last commit a crash can leave some committed and others not. Every obstacle that can be found before the
//! first commit is found by then.

use std::sync::Arc;
use std::time::Duration;

use ackline_relink::{ChannelId, Error, Outcome, Reason};
use tokio::task::JoinSet;
use tokio::time::timeout as within;

use super::link::Link;
use super::options::ConnectOptions;
use super::receipt::Receipt;

/// The fate of a transaction that was to be committed.
#[derive(Debug, Clone)]
pub enum Fate {
    /// The receiver has processed its messages.
    Committed,
    /// The receiver answered that it has not processed them all; with its reason, if it told one.
    Refused(Option<Reason>),
    /// It is not committed, and never will be: nobody sees its messages. The error is that of a link that could not
    /// be adopted.
    Dropped(Option<Error>),
    /// The commit left, or may have left, and its outcome is not known.
    Unknown(Error),
}

/// Commits the transactions that are in links which were [handed over](Link::hand_over), all of them or,
/// where one cannot be gone on with, none; then shuts their links down. Their fates are in the order of the
/// `states`. `timeout` is the time to go on with each link, and to wait for an outcome since the last one.
/// Must run inside a tokio runtime.
pub async fn commit_all(
    url: &str,
    options: &ConnectOptions,
    states: &[Vec<u8>],
    timeout: Duration,
) -> Vec<Fate> {
    let adopted = adopt_all(url, options, states, timeout).await;
    if adopted.iter().any(Result::is_err) {
        // The caller rolls the transactions back, or they expire at the receiver.
        return adopted
            .into_iter()
            .map(|adopted| Fate::Dropped(adopted.err()))
            .collect();
    }
    let links: Vec<Link> = adopted.into_iter().flatten().collect();
    let committed: Vec<_> = links.iter().map(commit).collect();
    let mut fates = Vec::with_capacity(links.len());
    for (link, receipts) in links.iter().zip(committed) {
        fates.push(match receipts {
            Ok(receipts) => outcome(link, &receipts, timeout).await,
            Err(error) => Fate::Unknown(error),
        });
    }
    shut_down(links).await;
    fates
}

/// Rolls back the transactions that are in links which were handed over, as far as they can be gone on with:
/// answers how many. The others expire at the receiver with their links.
pub async fn roll_back_all(
    url: &str,
    options: &ConnectOptions,
    states: &[Vec<u8>],
    timeout: Duration,
) -> usize {
    let adopted = adopt_all(url, options, states, timeout).await;
    let links: Vec<Link> = adopted.into_iter().flatten().collect();
    let rolled_back = links.iter().filter(|link| roll_back(link).is_ok()).count();
    shut_down(links).await;
    rolled_back
}

/// Rolls back all that was sent on a link and is not decided.
///
/// # Errors
/// The link is over.
pub fn roll_back(link: &Link) -> Result<(), Error> {
    for (channel, receipt) in undecided(link) {
        match link.rollback(&channel, Some(receipt.sequence())) {
            // It was decided before.
            Ok(_) => {}
            Err(error) if error.is_usage() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn commit(link: &Link) -> Result<Vec<Receipt>, Error> {
    let mut receipts = Vec::new();
    for (channel, receipt) in undecided(link) {
        link.commit(&channel, Some(receipt.sequence()))?;
        receipts.push(receipt);
    }
    Ok(receipts)
}

/// The own channels with the last message of each.
fn undecided(link: &Link) -> Vec<(ChannelId, Receipt)> {
    let channels: Vec<ChannelId> = link.call(|session, _| {
        let channels = session.machine().channels();
        channels.map(|(channel, _)| channel.clone()).collect()
    });
    let receipt = |channel: ChannelId| Some((channel.clone(), link.last_receipt(&channel)?));
    channels.into_iter().filter_map(receipt).collect()
}

async fn outcome(link: &Link, receipts: &[Receipt], timeout: Duration) -> Fate {
    let mut is_whole = true;
    for receipt in receipts {
        match within(timeout, receipt.committed()).await {
            Ok(Ok(outcome)) => is_whole &= outcome == Outcome::Committed,
            Ok(Err(error)) => return Fate::Unknown(error),
            Err(_) => return Fate::Unknown(Error::Timeout),
        }
    }
    if is_whole {
        Fate::Committed
    } else {
        Fate::Refused(link.told().refused)
    }
}

async fn adopt_all(
    url: &str,
    options: &ConnectOptions,
    states: &[Vec<u8>],
    timeout: Duration,
) -> Vec<Result<Link, Error>> {
    let options = ConnectOptions {
        // A receiver that is away may come back in time.
        timeout: Some(timeout),
        ..options.clone()
    };
    let url: Arc<str> = url.into();
    let mut adopting = JoinSet::new();
    for (at, state) in states.iter().cloned().enumerate() {
        let (url, options) = (Arc::clone(&url), options.clone());
        adopting.spawn(async move { (at, super::adopt(&url, options, &state).await) });
    }
    let mut adopted = adopting.join_all().await;
    adopted.sort_unstable_by_key(|(at, _)| *at);
    adopted.into_iter().map(|(_, adopted)| adopted).collect()
}

/// In good order, as far as the peer goes along: a link that it does not end expires there.
async fn shut_down(links: Vec<Link>) {
    let mut ending = JoinSet::new();
    for link in links {
        ending.spawn(async move { link.shutdown(Some(GOODBYE)).await });
    }
    ending.join_all().await;
}

/// How long the end of a link may take when all is known.
pub const GOODBYE: Duration = Duration::from_secs(2);
