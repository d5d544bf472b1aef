//! The key of a spool's digests: made once, kept beside its identity. Nothing on disk depends on
//! it: a missing key, as in spools of earlier releases, or a damaged one is replaced by a new one.

use std::io;

use crate::{
    Digester, Spool, SpoolError,
    folder::{Folder, KEY},
};

/// Makes a key unless there is one.
pub(crate) fn ensure(folder: &Folder) -> Result<(), SpoolError> {
    match read(folder) {
        Ok(_) => return Ok(()),
        Err(SpoolError::Corrupt { path, .. }) => {
            tracing::warn!(code = "spool.key_renewed", path = %path.display(),
                "the key of the digests was damaged: there is a new one");
        }
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    renew(folder)
}

/// Makes a new key.
pub(crate) fn renew(folder: &Folder) -> Result<(), SpoolError> {
    use std::fmt::Write as _;
    let mut key = [0_u8; 32];
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty()).map_err(|error| {
        SpoolError::io("draw a key for", &folder.root().join(KEY), error.into())
    })?;
    let mut text = String::with_capacity(65);
    for byte in key {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
    folder.replace(folder.root(), KEY, text.as_bytes())
}

fn read(folder: &Folder) -> Result<[u8; 32], SpoolError> {
    let path = folder.root().join(KEY);
    let missing = || SpoolError::io("read", &path, io::ErrorKind::NotFound.into());
    let text = folder.root().read(KEY)?.ok_or_else(missing)?;
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut key = [0; 32];
    let digits = text.trim_ascii_end();
    let mut sound = digits.len() == 2 * key.len();
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        let value = pair
            .iter()
            .try_fold(0, |sum, one| Some(sum * 16 + digit(*one)?));
        sound &= value.is_some();
        *byte = value
            .and_then(|value| u8::try_from(value).ok())
            .unwrap_or_default();
    }
    if sound {
        Ok(key)
    } else {
        Err(SpoolError::corrupt(
            &path,
            "it is no key of 64 hexadecimal digits",
        ))
    }
}

impl Spool {
    /// Returns the digester of events for this spool alone.
    ///
    /// # Errors
    /// `spool.io` if no writer has made its key yet, `spool.corrupt`.
    pub fn digester(&self) -> Result<Digester, SpoolError> {
        read(&self.folder).map(Digester::keyed)
    }
}
