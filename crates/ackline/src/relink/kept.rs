//! Where a receiver keeps its links, and how they are found there: the same for those that come in and for those
//! that it makes.

use std::collections::BTreeSet;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ackline_link::{Address, Budget};
use ackline_spool::{Access, Spool, Writer};

use super::found::Found;
use super::landed::Landed;
use super::state::{Landing as _, Restored, endpoints_in};
use super::url::{Target, escaped};
use crate::{ReceiverError, ReceiverOptions};
use ackline_relink::Error;

/// The spool that messages are landed in, with the state that an earlier process left in `dir`; and that process's
/// links with everything consumed that the spool holds of them.
pub(super) fn caught_up(
    (spool, writer): (&Path, &Writer),
    dir: &Path,
    links: Vec<Restored>,
    options: &ReceiverOptions,
) -> Result<(Arc<Landed>, Vec<Restored>), ReceiverError> {
    let landed = Arc::new(Landed::open(dir, writer.clone()));
    if links.is_empty() {
        return Ok((landed, links));
    }
    let access = Access {
        group: options.writer.group,
    };
    let spool = Spool::open_with(spool, access)?;
    let found = Found::look(&spool, landed.settled()).map_err(state_error)?;
    let caught_up = links.into_iter().map(|one| {
        let mut one = found.caught_up(one)?;
        one.journal = one.journal.landing(Arc::clone(&landed));
        Ok::<_, Error>(one)
    });
    let links = caught_up.collect::<Result<_, _>>().map_err(state_error)?;
    Ok((landed, links))
}

/// The directory for the links of one site in the spool `dir`. It is named by the endpoints that the site serves and not
/// by its address, so that a receiver that is moved to another port finds its links.
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
    let own = sites.dir_of(at);
    if (0..sites.listening.len()).any(|other| other != at && sites.dir_of(other) == own) {
        return Err(ReceiverError::Usage(format!(
            "{} is given twice: two sockets do not share the links of a name; give their ports, or \
             --no-durable-links",
            urls.join(" ")
        )));
    }
    if at == 0 {
        sites.look(&parent)?;
    }
    Ok(parent.join(own))
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

/// The directory for Relink's files within the spool's directory.
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

/// The endpoints that a receiver serves at one address.
#[derive(Debug)]
struct Site {
    address: String,
    urls: Vec<String>,
    names: BTreeSet<String>,
}

/// The addresses at which a receiver listens and to which it connects: each has links of its own.
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

    /// The first of a site's names in their order. If another site has that name too, the address follows.
    fn dir_of(&self, at: usize) -> String {
        let name = self.name_of(at);
        let others = self.listening.iter().enumerate();
        let is_elsewhere = others
            .filter(|(other, _)| *other != at)
            .any(|(_, other)| other.names.contains(name));
        if is_elsewhere {
            return self.dir_with_address(at);
        }
        format!("at-{}", file_name(name))
    }

    fn name_of(&self, at: usize) -> &str {
        self.listening[at].names.first().map_or("", String::as_str)
    }

    fn dir_with_address(&self, at: usize) -> String {
        let (name, address) = (self.name_of(at), &self.listening[at].address);
        format!("at-{}", file_name(&format!("{name}@{address}")))
    }

    /// Moves directories of links that no site uses to sites that have none: each goes to the first site that serves
    /// its endpoints, and a directory that was named by that site's own address goes before others. Earlier versions
    /// named a directory by the address, and a site's directory is named by both while several sites have one
    /// name. Reports the links that no site takes.
    fn look(&self, parent: &Path) -> Result<(), ReceiverError> {
        let sites = 0..self.listening.len();
        let own: BTreeSet<String> = sites.clone().map(|at| self.dir_with_address(at)).collect();
        let mut unused = self.unused(parent)?;
        unused.sort_by_cached_key(|(name, _)| (!own.contains(name), name.clone()));
        for (name, endpoints) in unused {
            let dir = parent.join(&name);
            let shown = dir.display();
            let serves = |site: &Site| endpoints.iter().all(|one| site.names.contains(one));
            let taker = sites.clone().find(|at| {
                let is_free = !parent.join(self.dir_of(*at)).exists();
                !name.starts_with("to-") && serves(&self.listening[*at]) && is_free
            });
            if let Some(at) = taker {
                let to = parent.join(self.dir_of(at));
                std::fs::rename(&dir, &to).map_err(state_error)?;
                let to = to.display();
                tracing::warn!(code = "relink.state_moved", dir = %shown, %to, "links were kept by another address");
                continue;
            }
            let endpoints: Vec<_> = endpoints.iter().map(|name| format!("{name:?}")).collect();
            let endpoints = endpoints.join(", ");
            tracing::warn!(
                code = "relink.state_unused",
                dir = %shown,
                endpoints,
                "no URL of this receiver uses the links in this directory: their peers get new ones"
            );
        }
        Ok(())
    }

    /// Directories of links that no site uses, each with the endpoints of its links.
    fn unused(&self, parent: &Path) -> Result<Vec<(String, Vec<String>)>, ReceiverError> {
        let mut used: BTreeSet<String> = self.links_out.iter().cloned().collect();
        used.extend((0..self.listening.len()).map(|at| self.dir_of(at)));
        let mut unused = Vec::new();
        for entry in std::fs::read_dir(parent).map_err(state_error)? {
            let dir = entry.map_err(state_error)?.path();
            let name = dir.file_name().and_then(|name| name.to_str());
            let Some(name) = name.filter(|name| dir.is_dir() && !used.contains(*name)) else {
                continue;
            };
            let names = endpoints_in(&dir).map_err(state_error)?;
            if !names.is_empty() {
                let names = names.iter().map(|name| name.as_str().to_owned());
                unused.push((name.to_owned(), names.collect()));
            }
        }
        Ok(unused)
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

/// The error of kept state that cannot be used.
pub(super) fn state_error(error: impl std::fmt::Display) -> ReceiverError {
    ReceiverError::Links(error.to_string())
}

/// Half of the bytes that can be admitted beside anything else: the rest is for the input after
/// them, which brings the commit. It is at most the limit of undecided bytes of a single link.
pub(super) fn most_staged(budget: &Budget) -> usize {
    let most = (budget.largest() / 2).min(budget.most_undecided() / 2);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Between two looks at how much of the spool is in the journals.
pub(super) const SETTLE_EVERY: Duration = Duration::from_secs(5);
/// A directory's name, before its checksum.
const MAX_NAME_BYTES: usize = 200;
