//! Certificates and keys from files, and a configuration that is rebuilt when they change.
//!
//! Each handshake checks whether a file has changed, by its identity, size and times. A file that
//! cannot be used is reported once, and the last good configuration stays in place.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, open};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::error::plain;
use super::identity::names;
use super::{TlsError, TlsOptions};

/// The most bytes of a file: a system's whole root store has a quarter of it.
const MAX_FILE: u64 = 1 << 20;

/// A configuration `T` built from options and the files they name.
pub(super) struct Reloading<T> {
    options: TlsOptions,
    build: fn(&TlsOptions) -> Result<T, TlsError>,
    state: Mutex<State<T>>,
}

struct State<T> {
    stamps: Vec<Option<Stamp>>,
    current: Arc<T>,
}

/// The properties that change when a file does.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl<T> Reloading<T> {
    pub(super) fn new(
        options: &TlsOptions,
        build: fn(&TlsOptions) -> Result<T, TlsError>,
    ) -> Result<Self, TlsError> {
        // Before the files are read: a change meanwhile is read again.
        let stamps = stamps(options);
        let current = Arc::new(build(options)?);
        tell_dates(options);
        tell_rights(options);
        Ok(Self {
            options: options.clone(),
            build,
            state: Mutex::new(State { stamps, current }),
        })
    }

    /// The configuration of the current files, or the last good one.
    pub(super) fn current(&self) -> Arc<T> {
        let now = stamps(&self.options);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.stamps == now {
            return Arc::clone(&state.current);
        }
        state.stamps = now;
        let files = shown(&self.options);
        match (self.build)(&self.options) {
            Ok(built) => {
                state.current = Arc::new(built);
                tracing::info!(
                    code = "tls.reload",
                    files,
                    "certificates and tokens were read again"
                );
                tell_dates(&self.options);
                tell_rights(&self.options);
            }
            Err(error) => tracing::error!(
                code = "tls.reload",
                files,
                why = %error,
                "new certificates or tokens cannot be used; the last good ones stay in use"
            ),
        }
        Arc::clone(&state.current)
    }
}

fn paths(options: &TlsOptions) -> impl Iterator<Item = &PathBuf> {
    let files = [&options.ca, &options.crl, &options.cert, &options.key];
    let secrets = [&options.token_file, &options.tokens_file];
    files.into_iter().chain(secrets).flatten()
}

fn shown(options: &TlsOptions) -> String {
    let names: Vec<_> = paths(options)
        .map(|path| path.display().to_string())
        .collect();
    names.join(", ")
}

fn stamps(options: &TlsOptions) -> Vec<Option<Stamp>> {
    paths(options).map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;

    // Links are followed: an orchestrator replaces a whole directory by one link.
    let found = std::fs::metadata(path).ok()?;
    Some(Stamp {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

/// Reports our own certificate if it is outside its validity, or will be within two weeks.
fn tell_dates(options: &TlsOptions) {
    const SOON: i64 = 14 * 24 * 3_600;

    let Some(path) = &options.cert else { return };
    let Ok(own) = certificates("cert", path) else {
        return;
    };
    let Some(Ok((_, parsed))) = own.first().map(|der| X509Certificate::from_der(der)) else {
        return;
    };
    let validity = parsed.validity();
    let now = x509_parser::time::ASN1Time::now().timestamp();
    let left = validity.not_after.timestamp().saturating_sub(now);
    if left < SOON || validity.not_before.timestamp() > now {
        tracing::warn!(
            code = "tls.expiry",
            cert = %path.display(),
            subject = names(&own[0]).0,
            not_before = %validity.not_before,
            not_after = %validity.not_after,
            "our certificate is out of its time, or will be soon"
        );
    }
}

/// Warns of a key or tokens that every user of the system can read.
fn tell_rights(options: &TlsOptions) {
    let secrets = [&options.key, &options.token_file, &options.tokens_file];
    for path in secrets.into_iter().flatten() {
        if is_world_readable(path) {
            tracing::warn!(
                code = "tls.key_readable",
                key = %path.display(),
                "every user of this system can read our key, or a token: take the right from others (chmod o-r)"
            );
        }
    }
}

/// Whether the file's mode lets users outside its owner and group read it.
fn is_world_readable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    const READ_BY_OTHERS: u32 = 0o004;

    std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & READ_BY_OTHERS != 0)
}

/// The certificates of a PEM file; at least one.
pub(super) fn certificates(
    option: &str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(option, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(wrong(option, path, "holds no certificate in PEM form")),
        Err(error) => Err(wrong(option, path, &format!("is no PEM file: {error}"))),
    }
}

/// The private key of a PEM file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read("key", path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        let encrypted = pem
            .windows(b"ENCRYPTED".len())
            .any(|text| text == b"ENCRYPTED");
        let why = if encrypted {
            "holds an encrypted key: decrypt it (openssl pkey) and guard the file by its rights"
        } else {
            "holds no private key in PEM form"
        };
        wrong("key", path, why)
    })
}

/// A store that trusts every certificate of a file.
pub(super) fn roots(
    path: &Path,
) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), TlsError> {
    let trusted = certificates("ca", path)?;
    let mut roots = RootCertStore::empty();
    for one in &trusted {
        roots.add(one.clone()).map_err(|error| {
            wrong(
                "ca",
                path,
                &format!("holds a bad certificate: {}", plain(&error)),
            )
        })?;
    }
    Ok((roots, trusted))
}

/// The revocation lists of a PEM file; at least one if there is a file.
pub(super) fn revocations(
    path: Option<&Path>,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let Some(path) = path else {
        return Ok(Vec::new());
    };
    let pem = read("crl", path)?;
    let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(wrong("crl", path, "holds no revocation list in PEM form")),
        Err(error) => Err(wrong("crl", path, &format!("is no PEM file: {error}"))),
    }
}

pub(super) fn wrong(option: &str, path: &Path, why: &str) -> TlsError {
    TlsError::Options(format!("{option} {} {why}", path.display()))
}

pub(super) fn read(option: &str, path: &Path) -> Result<Vec<u8>, TlsError> {
    use std::io::Read as _;

    let unread = |error| wrong(option, path, &format!("cannot be read: {error}"));
    // Every handshake would wait for a pipe.
    let no_wait = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = std::fs::File::from(
        open(path, no_wait, Mode::empty()).map_err(|error| unread(error.into()))?,
    );
    if !file.metadata().map_err(unread)?.is_file() {
        return Err(wrong(option, path, "is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(unread)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(wrong(option, path, "is larger than 1 MiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_that_is_not_regular_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            let error = read("key", path).unwrap_err().to_string();
            assert_eq!(error, format!("key {} is no regular file", path.display()));
        }
        let error = read("key", &folder.path().join("none"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot be read: No such file"), "{error}");
    }

    #[test]
    fn a_key_is_readable_by_all_if_its_mode_lets_others_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, is_open) in [(0o600, false), (0o640, false), (0o604, true), (0o644, true)] {
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(file.path(), rights).unwrap();
            assert_eq!(is_world_readable(file.path()), is_open, "{mode:o}");
        }
        assert!(!is_world_readable(Path::new("/no/such/key")));
    }
}
