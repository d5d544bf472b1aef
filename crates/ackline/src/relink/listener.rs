//! A listener for applications: hands out each new link once.

use ackline_link::{Acceptor, AcceptorStats, Budget, Endpoint, ListenSpec};
use ackline_relink::{EndpointConfig, Error};

use super::link::Link;
use super::options::{ListenOptions, endpoint_name};
use super::registry::{LinkRegistry, LinkRegistryOptions, Told, refused};
use super::session::Session;
use super::state::ListenerState;
use super::url::{Target, url_of};
use crate::listening::{Listening, MadeLinks, log_refusal};

/// Accepts links. Dropping it closes the socket: links that were handed out stay as long as their transports
/// do, and no connector can come back to one.
pub struct Listener {
    url: String,
    registry: LinkRegistry<Session>,
    listening: Listening<Link>,
}

impl Listener {
    pub(super) async fn listen(url: &str, mut options: ListenOptions) -> Result<Self, Error> {
        let url = options.with_url(url)?;
        let mut target = Target::parse(&url).map_err(Error::url)?;
        let endpoint = &mut target.endpoint;
        Endpoint::fill(std::slice::from_mut(endpoint), &options.tls).map_err(Error::url)?;
        let spec = ListenSpec::new(target.endpoint.clone(), options.acceptor.handshake_timeout)
            .map_err(Error::url)?;
        let endpoints = endpoints(&target, &options)?;
        let broken = |error| Error::Listen(format!("{spec}: {error}").into());
        let listener = spec.bind().await.map_err(broken)?;
        // After the address, so that one in use leaves no directory behind.
        let state = match &options.state {
            None => None,
            Some(dir) => Some(ListenerState::open(dir, &endpoints, &options.link)?),
        };
        let send_bytes = options.link.send_bytes;
        let registry = LinkRegistry::new(
            LinkRegistryOptions {
                endpoints,
                link: options.link,
                handshake_timeout: options.acceptor.handshake_timeout,
                keep: options.keep,
                budget: Budget::new(options.memory),
            },
            state,
            move |machine| Session::new(machine, send_bytes),
        );
        let url = url_of(listener.url(), &target.name);
        let acceptor = Acceptor::new(options.acceptor);
        let listening = Listening::start(listener, acceptor.clone(), "relink.accept", |made, _| {
            let told = tell(registry.clone(), acceptor, made);
            registry.restored(&told);
            let registry = registry.clone();
            move |admitted| {
                let (registry, told) = (registry.clone(), told.clone());
                tokio::spawn(async move { registry.serve(admitted, &told).await });
            }
        });
        Ok(Self {
            url,
            registry,
            listening,
        })
    }

    /// The URL listened on, with the port that was chosen.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The next link: a new one, or one of an earlier process. Those that come back do so by themselves.
    /// Cancel-safe.
    ///
    /// # Errors
    /// The listening socket itself is broken.
    pub async fn accept(&self) -> Result<Link, Error> {
        let next = self.listening.next().await;
        next.ok_or_else(|| Error::Listen("the listener is broken".into()))
    }

    /// The next link, if one is there now.
    pub fn try_accept(&self) -> Option<Link> {
        self.listening.try_next()
    }

    /// Accepts no more: when this returns, the socket is closed and its address is free.
    /// Links that were handed out go on while their transports do. Cancel-safe.
    pub async fn close(&self) {
        self.listening.close().await;
    }

    /// Links that are kept, with and without a transport.
    pub fn links(&self) -> usize {
        self.registry.len()
    }

    /// Counters of connections that were turned away, and of health checks.
    pub fn stats(&self) -> AcceptorStats {
        self.listening.stats()
    }

    /// Its waits that take nothing.
    pub fn listening(&self) -> &Listening<Link> {
        &self.listening
    }
}

fn endpoints(target: &Target, options: &ListenOptions) -> Result<Vec<EndpointConfig>, Error> {
    let mut endpoints = vec![EndpointConfig {
        endpoint_name: endpoint_name(&target.name).map_err(Error::url)?,
        parameters: target.wanted.with(options.parameters).map_err(Error::url)?,
    }];
    for one in &options.endpoints {
        let name = &one.endpoint_name;
        if endpoints.iter().any(|other| other.endpoint_name == *name) {
            return Err(Error::url(format!(
                "endpoint {:?} is given twice",
                name.as_str()
            )));
        }
        endpoints.push(one.clone());
    }
    Ok(endpoints)
}

fn tell(
    registry: LinkRegistry<Session>,
    acceptor: Acceptor,
    links: MadeLinks<Link>,
) -> impl Fn(Told<Session>) + Clone + Send + Sync {
    move |told| match told {
        Told::Made(made) => links.put(Link::made(made, registry.clone())),
        Told::Ended(peer, end) => {
            let peer = &*peer.name;
            match &end {
                ackline_link::End::Protocol(error) => {
                    let code = ackline_core::ErrorKind::code(&error.kind);
                    tracing::warn!(code, peer, why = %end, "connection ended");
                }
                _ => {
                    tracing::debug!(code = "relink.ended", peer, why = %end, "connection ended");
                }
            }
        }
        Told::Refused(peer, refusal) => {
            log_refusal(&acceptor.refuse(refused(&refusal, &peer)));
        }
    }
}
