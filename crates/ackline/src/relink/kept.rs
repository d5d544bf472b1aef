//! Where a receiver keeps its links, and how they are found there: the same for those that come in and for those
//! that it makes.

use std::collections::BTreeSet;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ackline_link::{Address, Budget};
use ackline_spool::Spool;

use super::error::Error;
use super::found::Found;
use super::landed::Landed;
use super::state::{Restored, endpoints_in};
use super::url::{Target, escaped};
use crate::{ReceiverError, ReceiverOptions};

/// Links of an earlier process with everything consumed that the spool holds of them.
pub(super) fn caught_up(
    links: Vec<Restored>,
    landed: &Arc<Landed>,
    spool: &Spool,
) -> Result<Vec<Restored>, ReceiverError> {
    if links.is_empty() {
        return Ok(links);
    }
    let found = Found::look(spool, landed.settled()).map_err(state_error)?;
    let caught_up = links.into_iter().map(|one| {
        let mut one = found.caught_up(one)?;
        one.journal = one.journal.landing(Some(Arc::clone(landed)));
        Ok::<_, Error>(one)
    });
    caught_up.collect::<Result<_, _>>().map_err(state_error)
}

/// The directory of the links of one site in the spool `dir`: by the names that are served there, whatever its
/// address, so that a receiver that is moved to another port finds its links.
///
/// # Errors
/// A directory cannot be made or read.
pub(super) fn listener_dir(
    dir: &Path,
    urls: &[String],
    options: &ReceiverOptions,
) -> Result<PathBuf, ReceiverError> {
    let parent = parent_of(dir)?;
    let sites = Sites::of(options);
    let Some(at) = sites.listening.iter().position(|one| one.urls == urls) else {
        return Err(state_error("it is no site of this receiver"));
    };
    if at == 0 {
        sites.look(&parent)?;
    }
    Ok(parent.join(sites.dir_of(at)))
}

/// The directory of the link that is made to this URL: by the URL without its query, since the link is that
/// listener's.
///
/// # Errors
/// A directory cannot be made or read.
pub(super) fn connector_dir(
    dir: &Path,
    url: &str,
    options: &ReceiverOptions,
) -> Result<PathBuf, ReceiverError> {
    let parent = parent_of(dir)?;
    let sites = Sites::of(options);
    if sites.listening.is_empty() && options.connect.first().is_some_and(|first| first == url) {
        sites.look(&parent)?;
    }
    let target = Target::parse(url).map_err(ReceiverError::Usage)?;
    Ok(parent.join(link_dir(&target)))
}

/// The directory in the spool's that everything of Relink is in.
fn parent_of(dir: &Path) -> Result<PathBuf, ReceiverError> {
    let parent = dir.join("relink");
    make_dir(&parent)?;
    Ok(parent)
}

fn link_dir(target: &Target) -> String {
    let place = target.shown();
    let place = place.split("://").last().unwrap_or_default();
    format!("to-{}", file_name(place))
}

/// What a receiver serves at one address.
#[derive(Debug)]
struct Site {
    address: String,
    urls: Vec<String>,
    names: BTreeSet<String>,
}

/// All that a receiver keeps links for.
#[derive(Debug, Default)]
struct Sites {
    listening: Vec<Site>,
    links_out: Vec<String>,
}

impl Sites {
    fn of(options: &ReceiverOptions) -> Self {
        let mut sites = Self::default();
        for url in &options.urls {
            let Ok(target) = Target::parse(url) else {
                continue;
            };
            let address = target.endpoint.to_string();
            let is_any = matches!(target.endpoint.addresses[..], [Address::Tcp(_, 0)]);
            let mut same = sites.listening.iter_mut();
            let same = same.find(|one| one.address == address && !is_any);
            if let Some(site) = same {
                site.urls.push(url.clone());
                site.names.insert(target.name);
                continue;
            }
            sites.listening.push(Site {
                address,
                urls: vec![url.clone()],
                names: BTreeSet::from([target.name]),
            });
        }
        let targets = options
            .connect
            .iter()
            .filter_map(|url| Target::parse(url).ok());
        sites.links_out = targets.map(|target| link_dir(&target)).collect();
        sites
    }

    /// The least of a site's names; where another site has it too, the address beside it.
    fn dir_of(&self, at: usize) -> String {
        let site = &self.listening[at];
        let name = site.names.first().map_or("", String::as_str);
        let others = self.listening.iter().enumerate();
        let is_elsewhere = others
            .filter(|(other, _)| *other != at)
            .any(|(_, other)| other.names.contains(name));
        if is_elsewhere {
            return format!("at-{}", file_name(&format!("{name}@{}", site.address)));
        }
        format!("at-{}", file_name(name))
    }

    /// Says which links stand there that nobody here keeps; those that were kept by an address are given to
    /// the site that serves them.
    fn look(&self, parent: &Path) -> Result<(), ReceiverError> {
        let mut used: BTreeSet<String> = self.links_out.iter().cloned().collect();
        used.extend((0..self.listening.len()).map(|at| self.dir_of(at)));
        for entry in std::fs::read_dir(parent).map_err(state_error)? {
            let dir = entry.map_err(state_error)?.path();
            let name = dir.file_name().and_then(|name| name.to_str());
            let Some(name) = name.filter(|name| dir.is_dir() && !used.contains(*name)) else {
                continue;
            };
            let names = endpoints_in(&dir).map_err(state_error)?;
            if names.is_empty() {
                continue;
            }
            let shown = dir.display();
            let is_by_address = !name.starts_with("at-") && !name.starts_with("to-");
            let serves = |site: &Site| names.iter().all(|name| site.names.contains(name.as_str()));
            let taker = (0..self.listening.len()).find(|at| {
                let to = parent.join(self.dir_of(*at));
                is_by_address && serves(&self.listening[*at]) && !to.exists()
            });
            if let Some(at) = taker {
                let to = parent.join(self.dir_of(at));
                std::fs::rename(&dir, &to).map_err(state_error)?;
                let to = to.display();
                tracing::warn!(code = "relink.state_moved", dir = %shown, %to, "links were kept by an address");
                continue;
            }
            let names: Vec<_> = names
                .iter()
                .map(|name| format!("{:?}", name.as_str()))
                .collect();
            let endpoints = names.join(", ");
            tracing::warn!(
                code = "relink.state_unused",
                dir = %shown,
                endpoints,
                "links are kept there that nothing here serves or connects to: their peers get new ones"
            );
        }
        Ok(())
    }
}

/// A text as the name of a file: escaped, and cut where it is too long.
fn file_name(text: &str) -> String {
    let mut name = escaped(text);
    if name.len() > MAX_NAME_BYTES {
        name.truncate(MAX_NAME_BYTES);
        name = format!("{name}-{:08x}", crc32c::crc32c(text.as_bytes()));
    }
    name
}

/// Makes a directory for this user alone, if it is not there.
fn make_dir(dir: &Path) -> Result<(), ReceiverError> {
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(ReceiverError::Links(format!("{}: {error}", dir.display())))
        }
        _ => Ok(()),
    }
}

/// What is kept cannot be used.
pub(super) fn state_error(error: impl std::fmt::Display) -> ReceiverError {
    ReceiverError::Links(error.to_string())
}

/// Half of what can be admitted whatever else is held: the rest is for what comes behind it, the commit.
pub(super) fn most_staged(budget: &Budget) -> usize {
    usize::try_from(budget.largest() / 2).unwrap_or(usize::MAX)
}

/// Between two looks at how much of the spool is in the journals.
pub(super) const SETTLE_EVERY: Duration = Duration::from_secs(5);
/// A directory's name, before its checksum.
const MAX_NAME_BYTES: usize = 200;
