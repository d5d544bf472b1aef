//! The connecting side.

use std::sync::Arc;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::client::{ClientConfig, Resumption, WebPkiServerVerifier};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsConnector, TlsStream};

use super::error::plain;
use super::files::{Reloading, certificates, private_key, revocations, roots, wrong};
use super::pinned::Pinned;
use super::token::Token;
use super::{IdentityBy, Session, Tls, TlsError, TlsOptions, alert, provider};
use crate::Stream;
use crate::stream::Raw;

/// A TLS client: the trusted certificates, and our own if there is one.
pub struct Client {
    config: Reloading<Connecting>,
    server_name: Option<ServerName<'static>>,
}

/// The configuration from the files.
struct Connecting {
    config: Arc<ClientConfig>,
    token: Option<Token>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Reads the files of `options`, or the system's roots if there is no `ca`.
    ///
    /// # Errors
    /// [`TlsError::Options`]: a file that cannot be used, `cert` without `key`, no roots on this
    /// system, an invalid `server_name`, or `client_auth`, `identity` or `tokens_file`, which are
    /// for listeners.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsError> {
        if options.client_auth.is_some() {
            let message =
                "client_auth is for listeners: a client sends its cert when it is asked to";
            return Err(TlsError::Options(message.to_owned()));
        }
        if options.identity.is_some() {
            let message = "identity is for listeners: it names the part of a certificate that identifies clients";
            return Err(TlsError::Options(message.to_owned()));
        }
        if options.tokens_file.is_some() {
            let message = "tokens_file is for listeners: a client has its own token in token_file";
            return Err(TlsError::Options(message.to_owned()));
        }
        let server_name = options.server_name.as_deref().map(name).transpose()?;
        Ok(Self {
            config: Reloading::new(options, build)?,
            server_name,
        })
    }

    /// Performs the handshake with the server `host`. There is no deadline: the caller has one.
    /// With TLS 1.3 a server that refuses our certificate or our token says so only after this has
    /// returned: as the error of the first read.
    ///
    /// # Errors
    /// The handshake failed, the server's certificate is not accepted, or it does not speak TLS.
    pub async fn connect(&self, stream: Stream, host: &str) -> Result<(Stream, Session), TlsError> {
        let server = match &self.server_name {
            Some(name) => name.clone(),
            None => name(host)?,
        };
        // Boxed, because a connection's task keeps the size of its largest part for its whole life.
        Box::pin(self.handshake(stream, server)).await
    }

    async fn handshake(
        &self,
        stream: Stream,
        server: ServerName<'static>,
    ) -> Result<(Stream, Session), TlsError> {
        let raw = Raw::try_from(stream)?;
        let peer = raw.peer();
        let connecting = self.config.current();
        let connector = TlsConnector::from(Arc::clone(&connecting.config));
        match connector.connect(server, raw).into_fallible().await {
            Ok(stream) => {
                let session = Session::new(stream.get_ref().1, IdentityBy::default(), None);
                let mut tls = Tls::new(TlsStream::Client(stream), peer);
                if let Some(token) = &connecting.token {
                    tls.begin(token)
                        .await
                        .map_err(|error| TlsError::from_io(error, 1))?;
                }
                Ok((Stream::from(tls), session))
            }
            Err((error, raw)) => {
                let error = TlsError::from_io(error, raw.bytes_in);
                alert::linger(Stream::from_raw(raw)).await;
                Err(error)
            }
        }
    }
}

fn name(text: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(text.to_owned()).map_err(|_| {
        TlsError::Options(format!(
            "server_name {text:?} is no host name or IP address"
        ))
    })
}

fn build(options: &TlsOptions) -> Result<Connecting, TlsError> {
    let token = options.token_file.as_deref().map(Token::read).transpose()?;
    let (roots, trusted) = match &options.ca {
        Some(path) => roots(path)?,
        None => (system_roots()?, Vec::new()),
    };
    let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .with_crls(revocations(options.crl.as_deref())?)
        .enforce_revocation_expiration()
        .build()
        .map_err(|error| TlsError::Options(format!("ca or crl cannot be used: {error}")))?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Options(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { trusted, chains }));
    let mut config = match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => builder
            .with_client_auth_cert(certificates("cert", cert)?, private_key(key)?)
            .map_err(|error| {
                wrong(
                    "cert",
                    cert,
                    &format!("and its key cannot be used: {}", plain(&error)),
                )
            })?,
        (None, None) => builder.with_no_client_auth(),
        (Some(_), None) => return Err(TlsError::Options("cert needs key".to_owned())),
        (None, Some(_)) => return Err(TlsError::Options("key needs cert".to_owned())),
    };
    config.resumption = Resumption::disabled();
    Ok(Connecting {
        config: Arc::new(config),
        token,
    })
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(ToString::to_string);
        return Err(TlsError::Options(format!(
            "ca is not set, and this system has no root certificates ({})",
            why.unwrap_or_else(|| "none found".to_owned())
        )));
    }
    Ok(roots)
}
