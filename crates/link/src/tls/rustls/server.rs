//! The listening side.

use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::error::plain;
use super::files::{Reloading, certificates, private_key, revocations, roots, wrong};
use super::identity::only_authority;
use super::pinned::Pinned;
use super::token::Tokens;
use super::{
    ClientAuth, HANDSHAKE_TIMEOUT, IdentityBy, Session, Tls, TlsError, TlsOptions, alert, provider,
    token,
};
use crate::Stream;
use crate::stream::Raw;

/// A TLS server: our certificate, and whether clients must have one.
pub struct Server {
    config: Reloading<Serving>,
    identity: IdentityBy,
    needs_proof: bool,
    timeout: Duration,
}

/// The configuration from the files.
struct Serving {
    config: Arc<ServerConfig>,
    /// The subject of the one authority that is trusted for clients' certificates; `None` if there
    /// are several.
    authority: Option<String>,
    tokens: Option<Tokens>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// Reads the files of `options`.
    ///
    /// # Errors
    /// [`TlsError::Options`]: no `cert` or `key`, a file that cannot be used, `client_auth` without
    /// `ca`, or `server_name` or `token_file`, which are for clients.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsError> {
        Ok(Self {
            config: Reloading::new(options, build)?,
            identity: options.identity.unwrap_or_default(),
            needs_proof: client_auth(options) == ClientAuth::Required
                || options.tokens_file.is_some(),
            timeout: HANDSHAKE_TIMEOUT,
        })
    }

    /// Whether only clients with a certificate or a token are served.
    pub(crate) const fn needs_proof(&self) -> bool {
        self.needs_proof
    }

    /// The same with another handshake timeout than [`HANDSHAKE_TIMEOUT`].
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Performs the handshake on an accepted transport. The peer is told of a failure by an alert,
    /// and the transport is closed when this returns. Not cancel-safe: dropping it closes the
    /// transport.
    ///
    /// # Errors
    /// The handshake failed or took too long, or the peer does not speak TLS.
    pub async fn accept(&self, stream: Stream) -> Result<(Stream, Session), TlsError> {
        // Boxed, because a connection's task keeps the size of its largest part for its whole life.
        Box::pin(self.handshake(stream)).await
    }

    async fn handshake(&self, mut stream: Stream) -> Result<(Stream, Session), TlsError> {
        let until = tokio::time::Instant::now() + self.timeout;
        match tokio::time::timeout_at(until, stream.first_byte()).await {
            Err(_) => return Err(self.late("the client sent nothing")),
            Ok(Err(error)) => return Err(TlsError::Io(Arc::new(error))),
            Ok(Ok(None)) => {
                let closed = std::io::ErrorKind::UnexpectedEof;
                return Err(TlsError::from_io(closed.into(), 0));
            }
            Ok(Ok(Some(HANDSHAKE_RECORD))) => {}
            Ok(Ok(Some(first))) => {
                // The client is told that this port takes TLS.
                alert::goodbye(stream, &UNEXPECTED_MESSAGE).await;
                let guess = guess(first);
                return Err(TlsError::Plaintext(format!(
                    "plain bytes on a port of TLS (the first is 0x{first:02x}: {guess})"
                )));
            }
        }
        let raw = Raw::try_from(stream)?;
        let peer = raw.peer();
        let serving = self.config.current();
        let acceptor = TlsAcceptor::from(Arc::clone(&serving.config));
        let mut accepting = acceptor.accept(raw).into_fallible();
        match tokio::time::timeout_at(until, &mut accepting).await {
            Ok(Ok(stream)) => {
                let mut session = Session::new(
                    stream.get_ref().1,
                    self.identity,
                    serving.authority.as_deref(),
                );
                let mut tls = Tls::new(TlsStream::Server(stream), peer);
                if let Some(tokens) = &serving.tokens {
                    let (known, name) = self.known(tokens, tls, until).await?;
                    (tls, session.token) = (known, Some(name));
                }
                Ok((Stream::from(tls), session))
            }
            Ok(Err((error, raw))) => {
                let error = TlsError::from_io(error, raw.bytes_in);
                alert::linger(Stream::from_raw(raw)).await;
                Err(error)
            }
            Err(_) => Err(self.late("the client began it and did not go on")),
        }
    }

    /// The session and the name of its client's token, which must come before the deadline.
    async fn known(
        &self,
        tokens: &Tokens,
        mut tls: Tls,
        until: tokio::time::Instant,
    ) -> Result<(Tls, String), TlsError> {
        let error = match tokio::time::timeout_at(until, tokens.greet(&mut tls)).await {
            Ok(Ok(name)) => return Ok((tls, name.to_string())),
            Ok(Err(error)) => error,
            Err(_) => self.late("the client sent no token"),
        };
        let refusal = token::refusal(&error).unwrap_or_default();
        alert::goodbye(Stream::from(tls), &refusal).await;
        Err(error)
    }

    const fn late(&self, so_far: &'static str) -> TlsError {
        TlsError::Timeout {
            limit: self.timeout,
            so_far,
        }
    }
}

/// A fatal alert `unexpected_message` in a record of TLS: the answer of servers of TLS to plain
/// bytes.
const UNEXPECTED_MESSAGE: [u8; alert::ALERT_BYTES] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x0a];

/// The type of a record of TLS that holds a `ClientHello`.
const HANDSHAKE_RECORD: u8 = 0x16;

fn build(options: &TlsOptions) -> Result<Serving, TlsError> {
    let (Some(cert), Some(key)) = (&options.cert, &options.key) else {
        let message =
            "a listener over TLS needs cert and key: PEM files of its certificate and key";
        return Err(TlsError::Options(message.to_owned()));
    };
    if options.token_file.is_some() {
        let message =
            "token_file is for clients: a listener has its clients' tokens in tokens_file";
        return Err(TlsError::Options(message.to_owned()));
    }
    if options.server_name.is_some() {
        let message = "server_name is for clients: a listener has the names of its cert";
        return Err(TlsError::Options(message.to_owned()));
    }
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Options(error.to_string()))?;
    let (builder, authority) = match client_verifier(options)? {
        Some((verifier, authority)) => (builder.with_client_cert_verifier(verifier), authority),
        None => (builder.with_no_client_auth(), None),
    };
    let chain = certificates("cert", cert)?;
    let mut config = builder
        .with_single_cert(chain, private_key(key)?)
        .map_err(|error| {
            wrong(
                "cert",
                cert,
                &format!("and its key cannot be used: {}", plain(&error)),
            )
        })?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Serving {
        config: Arc::new(config),
        authority,
        tokens: options
            .tokens_file
            .as_deref()
            .map(Tokens::read)
            .transpose()?,
    })
}

/// Whether clients present certificates, as set or by default.
fn client_auth(options: &TlsOptions) -> ClientAuth {
    options.client_auth.unwrap_or(match options.ca {
        Some(_) => ClientAuth::Required,
        None => ClientAuth::None,
    })
}

/// The verifier of clients' certificates, and the authority that it trusts, if there is only one.
type Verifying = (Arc<dyn ClientCertVerifier>, Option<String>);

fn client_verifier(options: &TlsOptions) -> Result<Option<Verifying>, TlsError> {
    let auth = client_auth(options);
    let path = match (auth, &options.ca) {
        (ClientAuth::None, None) if options.crl.is_some() || options.identity.is_some() => {
            let message = "crl and identity are about clients' certificates, which need ca";
            return Err(TlsError::Options(message.to_owned()));
        }
        (ClientAuth::None, None) => return Ok(None),
        (ClientAuth::None, Some(_)) => {
            let message =
                "client_auth none leaves a listener's ca without use: leave one of them out";
            return Err(TlsError::Options(message.to_owned()));
        }
        (_, None) => {
            let message = "client_auth needs ca: the certificates that issue the clients'";
            return Err(TlsError::Options(message.to_owned()));
        }
        (_, Some(path)) => path,
    };
    let (roots, trusted) = roots(path)?;
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .with_crls(revocations(options.crl.as_deref())?)
        .enforce_revocation_expiration();
    let builder = match auth {
        ClientAuth::Required => builder,
        _ => builder.allow_unauthenticated(),
    };
    let chains = builder
        .build()
        .map_err(|error| wrong("ca", path, &format!("or crl cannot be used: {error}")))?;
    let authority = only_authority(&trusted);
    Ok(Some((Arc::new(Pinned { trusted, chains }), authority)))
}

/// The look of plain bytes on a port of TLS.
fn guess(first: u8) -> &'static str {
    match first {
        b'1' => "Lumberjack version 1",
        b'2' => "Lumberjack version 2",
        b'G' | b'H' | b'C' | b'O' | b'D' | b'P' => "HTTP or another text protocol",
        0x80..=0xff => "SSL version 2, or no TLS at all",
        _ => "no TLS",
    }
}
