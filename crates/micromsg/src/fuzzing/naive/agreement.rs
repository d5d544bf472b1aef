//! The agreement on extensions, by its rules (R-MM-8, R-MM-18 to R-MM-22, R-MM-V1, R-MM-V2, R-MM-V7).

use super::texts::{self, List};

/// The extensions of a connection in their order.
#[derive(Debug, Default)]
pub(super) struct Agreed {
    pub(super) names: Vec<String>,
    /// Messages that may wait for their acknowledgement, if there are acknowledgements.
    pub(super) window: Option<usize>,
}

impl Agreed {
    fn new(names: Vec<String>, count: Option<usize>) -> Self {
        let mut agreed = Self {
            names,
            window: None,
        };
        agreed.window = agreed.ack().map(|at| match &*agreed.names[at] {
            "ack" => 1,
            _ => count.unwrap_or(10),
        });
        agreed
    }

    /// The place of the extension that acknowledges: the first of the two.
    pub(super) fn ack(&self) -> Option<usize> {
        let mut names = self.names.iter();
        names.position(|name| ["ack", "batch-ack"].contains(&name.as_str()))
    }

    /// The extensions of a connection without a handshake.
    pub(super) fn established(text: &str) -> Self {
        let list = texts::list(text).expect("it is a list");
        let lists = [list, Vec::new()];
        Self::new(names(&lists), count([&lists]))
    }
}

/// The extensions that an end has.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Own {
    /// Its required ones and its optional ones, as they are written.
    pub(in super::super) lists: [&'static str; 2],
    pub(in super::super) supported: &'static [&'static str],
}

impl Own {
    fn lists(&self) -> [List; 2] {
        self.lists
            .map(|text| texts::list(text).expect("it is a list"))
    }

    fn knows(&self, name: &str) -> bool {
        names(&self.lists()).iter().any(|own| own == name) || self.supported.contains(&name)
    }

    /// Whether a server can reply to a client's first handshake.
    pub(super) fn check(&self, theirs: &[List; 2]) -> Result<(), &'static str> {
        if theirs[0].iter().all(|(name, _)| self.knows(name)) {
            return Ok(());
        }
        Err("missing_extension")
    }

    /// The decision of a client on the server's reply.
    pub(super) fn decide(&self, reply: &[List; 2]) -> Result<Agreed, &'static str> {
        self.check(reply)?;
        let own = self.lists();
        let mut wanted = of(&own[0]);
        wanted.extend(of(&reply[0]));
        let listed = names(reply);
        wanted.extend(of(&own[1]).into_iter().filter(|name| listed.contains(name)));
        wanted.extend(of(&reply[1]).into_iter().filter(|name| self.knows(name)));
        let mut chosen: Vec<String> = Vec::new();
        for name in wanted {
            if !chosen.contains(&name) {
                chosen.push(name);
            }
        }
        if chosen.len() > 255 {
            return Err("too_many_extensions");
        }
        Ok(Agreed::new(chosen, count([&own, reply])))
    }

    /// The agreement that a client's final handshake makes, after its first one.
    pub(super) fn agree(
        &self,
        first: &[List; 2],
        last: &[List; 2],
    ) -> Result<Agreed, &'static str> {
        let (own, chosen) = (self.lists(), names(last));
        let mut others = chosen.iter().enumerate();
        if others.any(|(at, name)| chosen[..at].contains(name)) {
            return Err("duplicate_extension");
        }
        if chosen.len() > 255 {
            return Err("too_many_extensions");
        }
        let required = [of(&first[0]), of(&own[0])].concat();
        if required.iter().any(|name| !chosen.contains(name)) {
            return Err("missing_extension");
        }
        // The reply lists the own ones, and those of the client's that this end knows.
        let listed = of(&first[1]).into_iter().filter(|name| self.knows(name));
        let offered = [required, of(&own[1]), listed.collect()].concat();
        if chosen.iter().any(|name| !offered.contains(name)) {
            return Err("unexpected_extension");
        }
        let most = count([first, &own]);
        if most
            .zip(count([last]))
            .is_some_and(|(most, count)| count > most)
        {
            return Err("invalid_extension_property");
        }
        Ok(Agreed::new(chosen, count([first, &own, last])))
    }
}

/// Checks the counts in two lists.
pub(super) fn check_counts(lists: &[List; 2]) -> Result<(), &'static str> {
    if counts(lists).iter().all(Option::is_some) {
        return Ok(());
    }
    Err("invalid_extension_property")
}

/// The smallest count that any of these lists states.
fn count<const N: usize>(handshakes: [&[List; 2]; N]) -> Option<usize> {
    let all = handshakes.into_iter().flat_map(counts);
    all.flatten().min()
}

/// The counts that two lists state; none for one that is no count.
fn counts(lists: &[List; 2]) -> Vec<Option<usize>> {
    let batches = lists
        .iter()
        .flatten()
        .filter(|(name, _)| name == "batch-ack");
    let stated = batches.flat_map(|(_, properties)| properties);
    let spellings = ["max-count", "count", "batch-max", "MessagesPerAck"];
    let stated = stated.filter(|(name, _)| spellings.contains(&name.as_str()));
    let read = stated.map(|(_, value)| {
        let is_number = value.bytes().all(|digit| digit.is_ascii_digit());
        let number = value.trim_start_matches('0').parse().ok();
        number.filter(|number| is_number && (1..=65_534).contains(number))
    });
    read.collect()
}

fn of(list: &List) -> Vec<String> {
    list.iter().map(|(name, _)| name.clone()).collect()
}

fn names(lists: &[List; 2]) -> Vec<String> {
    lists.iter().flat_map(of).collect()
}
