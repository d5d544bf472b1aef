//! Publishers by name: each subscription of the peer gets a stream of elements of its own.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ackline_core::UsageError;
use ackline_reactive::{Error, Names};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use super::connection::Connection;
use super::publication::{Publication, SubscribeRequest};

/// Elements that a publisher has ready.
#[derive(Debug, Clone)]
pub enum Elements {
    /// Elements one by one.
    Each(Vec<Bytes>),
    /// Elements of the stream's fixed size, one behind the other.
    Packed(Bytes),
}

/// The elements for one subscription: their source is asked for more when the ones before were sent.
pub struct Published {
    element_size: u64,
    /// Whether the source has its elements, so that it may be asked for one before it is requested: a stream that has
    /// ended is complete without further demand.
    is_at_hand: bool,
    source: Pin<Box<dyn Stream<Item = Result<Elements, String>> + Send>>,
}

impl std::fmt::Debug for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Published")
            .field("element_size", &self.element_size)
            .finish_non_exhaustive()
    }
}

impl Published {
    /// The elements of a stream; an error of it is the stream's error, with this text. `element_size` is the size of every
    /// element, or 0 where they have any size.
    pub fn stream(
        element_size: u64,
        source: impl Stream<Item = Result<Elements, String>> + Send + 'static,
    ) -> Self {
        Self {
            element_size,
            is_at_hand: false,
            source: Box::pin(source),
        }
    }

    /// The same of a source that has its elements.
    fn at_hand(mut self) -> Self {
        self.is_at_hand = true;
        self
    }

    /// The elements of an iterator, of any size. They are at hand: the next one is taken before it is requested.
    pub fn iterator<I>(elements: I) -> Self
    where
        I: IntoIterator<Item: Into<Bytes>, IntoIter: Send + Unpin + 'static>,
    {
        let source = Steps(elements.into_iter().map(|one| {
            let elements = Elements::Each(vec![one.into()]);
            Ok(elements)
        }));
        Self::stream(0, source).at_hand()
    }

    /// Elements of a fixed size that stand one behind the other, such as an array of numbers.
    ///
    /// # Errors
    /// `wrong_element_size`: the size is 0, or the bytes are not a multiple of it.
    pub fn packed(element_size: u64, elements: Bytes) -> Result<Self, UsageError> {
        let size = usize::try_from(element_size).unwrap_or(usize::MAX);
        if size == 0 || !elements.len().is_multiple_of(size) {
            return Err(ackline_reactive::refusal::WRONG_ELEMENT_SIZE);
        }
        let elements = Some(Ok(Elements::Packed(elements)));
        Ok(Self::stream(element_size, Steps(elements.into_iter())).at_hand())
    }

    /// The elements that come through a channel, of any size, until its senders are gone.
    pub fn channel(mut elements: mpsc::Receiver<Bytes>) -> Self {
        let next = move |context: &mut Context<'_>| {
            let mut some = Vec::new();
            let came = elements.poll_recv_many(context, &mut some, MOST_FROM_CHANNEL);
            came.map(|count| (count > 0).then_some(Ok(Elements::Each(some))))
        };
        Self::stream(0, Polled(next))
    }

    /// The bytes of a file, in elements of at most 64 KiB.
    pub fn file(path: PathBuf) -> Self {
        let mut reading = Box::pin(read(path, None));
        let next = move |context: &mut Context<'_>| {
            let (file, bytes) = match reading.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Ok(read)) => read,
            };
            if bytes.is_empty() {
                return Poll::Ready(None);
            }
            reading = Box::pin(read(PathBuf::new(), Some(file)));
            Poll::Ready(Some(Ok(Elements::Each(vec![bytes]))))
        };
        Self::stream(0, Polled(next)).at_hand()
    }
}

/// Opens a file, if it is not open, and reads its next bytes; none at its end.
async fn read(
    path: PathBuf,
    file: Option<tokio::fs::File>,
) -> Result<(tokio::fs::File, Bytes), String> {
    let mut file = match file {
        Some(file) => file,
        None => tokio::fs::File::open(&path)
            .await
            .map_err(|error| format!("{}: {error}", path.display()))?,
    };
    let mut bytes = BytesMut::with_capacity(FILE_BYTES);
    let read = file.read_buf(&mut bytes).await;
    read.map_err(|error| error.to_string())?;
    Ok((file, bytes.freeze()))
}

/// An iterator as a stream.
struct Steps<I>(I);

impl<I: Iterator + Unpin> Stream for Steps<I> {
    type Item = I::Item;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.0.next())
    }
}

/// A function as a stream.
struct Polled<F>(F);

impl<T, F: FnMut(&mut Context<'_>) -> Poll<Option<T>> + Unpin> Stream for Polled<F> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        (self.0)(context)
    }
}

/// Makes the elements for a subscription to this name, or rejects it with a reason.
type Source = Arc<dyn Fn(&str) -> Result<Published, String> + Send + Sync>;

/// Publishers by name. Clones are the same at first, and changed apart.
#[derive(Clone, Default)]
pub struct Publishers(Names<Source>);

impl std::fmt::Debug for Publishers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publishers").finish_non_exhaustive()
    }
}

impl Publishers {
    /// No publishers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a publisher under a name, a beginning of names (`sensors/*`) or a pattern ([`Names::add`]). For each
    /// subscription `source` is called with the whole name; an error of it rejects the subscription with this reason.
    ///
    /// # Errors
    /// `publisher_exists`.
    pub fn add(
        &mut self,
        name: &str,
        source: impl Fn(&str) -> Result<Published, String> + Send + Sync + 'static,
    ) -> Result<(), UsageError> {
        self.0.add(name, Arc::new(source))
    }

    /// Serves the subscriptions of the peer of a connection, each in a task of its own, until the connection is over or the
    /// peer says goodbye, which ends their streams.
    ///
    /// # Errors
    /// [`Error::Ended`], unless the peer has ended it in good order.
    pub async fn serve(&self, connection: &Connection) -> Result<(), Error> {
        while let Some(request) = connection.accept().await? {
            self.answer(request);
        }
        Ok(())
    }

    /// Answers one subscription: accepts it and publishes in a task of its own, or rejects it.
    pub fn answer(&self, request: SubscribeRequest) {
        let name = request.publisher().to_owned();
        let source = self.0.find(&name);
        let published = source.map_or_else(
            || {
                let shown: String = name.chars().take(SHOWN).collect();
                Err(format!("there is no publisher {shown:?}"))
            },
            |source| source(&name),
        );
        match published {
            Ok(published) => drop(tokio::spawn(publish(request, published))),
            // The subscriber may be gone.
            Err(reason) => drop(request.reject(&reason)),
        }
    }
}

/// Publishes to one subscription, to its end.
async fn publish(request: SubscribeRequest, published: Published) {
    let Ok(publication) = request.accept(published.element_size) else {
        return;
    };
    // The subscriber may cancel at any time.
    let _ = publication.publish_from(published).await;
}

impl Publication {
    /// Publishes the elements of a source and ends the stream behind them. A stream or a channel is asked for more only when
    /// there is demand, so its end is seen with demand too.
    ///
    /// # Errors
    /// [`Error::Cancelled`], `wrong_element_size`; [`Error::Ended`].
    pub async fn publish_from(&self, mut published: Published) -> Result<(), Error> {
        loop {
            if !published.is_at_hand {
                self.room().await?;
            }
            let next = poll_fn(|context| {
                if let Poll::Ready(error) = self.poll_cancelled(context) {
                    return Poll::Ready(Err(error));
                }
                published.source.as_mut().poll_next(context).map(Ok)
            });
            match next.await? {
                None => return self.complete(),
                Some(Err(error)) => return self.fail(&error),
                Some(Ok(Elements::Each(elements))) => {
                    self.publish_all(&mut VecDeque::from(elements)).await?;
                }
                Some(Ok(Elements::Packed(mut elements))) => {
                    self.publish_packed(&mut elements).await?;
                }
            }
        }
    }
}

/// Characters of a name in a rejection.
const SHOWN: usize = 200;
/// Elements of a channel that are taken at once: those of a subscriber that leaves are lost.
const MOST_FROM_CHANNEL: usize = 1;
/// Bytes of a file in one element.
const FILE_BYTES: usize = 64 << 10;
