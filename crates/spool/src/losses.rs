//! Positions whose events are known to be gone or damaged: noted by recovery and by mending, and
//! reported by every status of a spool.

use serde_json::{Value, json};

use crate::{
    SpoolError,
    clock::{now_us, rfc3339, us_of},
    folder::{Folder, LOSSES},
    format::{FORMAT, check_format},
    sealed,
};

/// Positions [from, to) whose events cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The first position.
    pub from: u64,
    /// The position after the last one.
    pub to: u64,
    /// The reason why they cannot be read.
    pub why: LossWhy,
    /// When that was noted, in microseconds since 1970 (UTC).
    pub noted_us: i64,
}

impl Loss {
    /// A loss of these positions, found now.
    pub(crate) fn new(from: u64, to: u64, why: LossWhy) -> Self {
        let noted_us = now_us();
        Self {
            from,
            to,
            why,
            noted_us,
        }
    }
}

/// The reason why positions cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossWhy {
    /// The disk lost acknowledged writes.
    Lost,
    /// Their bytes are no longer as they were written.
    Corrupt,
    /// Their segment was removed by hand.
    Removed,
}

impl LossWhy {
    /// `lost`, `corrupt` or `removed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Corrupt => "corrupt",
            Self::Removed => "removed",
        }
    }

    fn of(text: &str) -> Option<Self> {
        let all = [Self::Lost, Self::Corrupt, Self::Removed];
        all.into_iter().find(|why| why.as_str() == text)
    }
}

/// The noted losses, in order and disjoint.
///
/// # Errors
/// `spool.corrupt` when the file was damaged, `spool.format`, `spool.io`.
pub(crate) fn read(folder: &Folder) -> Result<Vec<Loss>, SpoolError> {
    let Some(bytes) = folder.root().read(LOSSES)? else {
        return Ok(Vec::new());
    };
    let path = folder.root().join(LOSSES);
    let value = sealed::decode(&bytes, &path)?;
    let format = value["format"].as_u64();
    check_format(&path, format, format)?;
    let all = value["losses"].as_array();
    let found = all.and_then(|all| all.iter().map(loss).collect::<Option<Vec<_>>>());
    found.ok_or_else(|| SpoolError::corrupt(&path, "it holds no list of losses"))
}

/// The noted losses; none if the file was damaged, which is logged: gaps and damaged groups are
/// found again when they are read.
pub(crate) fn known(folder: &Folder) -> Result<Vec<Loss>, SpoolError> {
    match read(folder) {
        Err(error @ SpoolError::Corrupt { .. }) => {
            tracing::warn!(code = "spool.losses_unsound", dir = %folder.dir().display(), %error,
                "the list of losses cannot be read: it is made anew by `ackline spool mend`");
            Ok(Vec::new())
        }
        read => read,
    }
}

fn loss(value: &Value) -> Option<Loss> {
    let (from, to) = (value["from"].as_u64()?, value["to"].as_u64()?);
    (from < to).then_some(Loss {
        from,
        to,
        why: LossWhy::of(value["why"].as_str()?)?,
        noted_us: us_of(value["noted"].as_str()?)?,
    })
}

/// Adds losses to the known ones, which stay as they were noted. Returns whether any was new.
///
/// # Errors
/// Those of [`read`]; the file cannot be written.
pub(crate) fn add(folder: &Folder, uuid: &str, new: &[Loss]) -> Result<bool, SpoolError> {
    let mut all = known(folder)?;
    let mut is_new = false;
    for loss in new {
        for (from, to) in without(&all, loss.from, loss.to) {
            all.push(Loss { from, to, ..*loss });
            is_new = true;
        }
        all.sort_by_key(|loss| loss.from);
    }
    if is_new {
        write(folder, uuid, &all)?;
    }
    Ok(is_new)
}

/// Forgets losses below a position: nothing is kept there.
pub(crate) fn forget_below(folder: &Folder, uuid: &str, start: u64) -> Result<(), SpoolError> {
    let all = known(folder)?;
    let kept: Vec<Loss> = all.iter().copied().filter(|loss| loss.to > start).collect();
    if kept.len() == all.len() {
        return Ok(());
    }
    write(folder, uuid, &kept)
}

/// The parts of [from, to) that are in none of these losses, which are in order and disjoint.
pub(crate) fn without(losses: &[Loss], from: u64, to: u64) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    let mut at = from;
    for loss in losses {
        if loss.to <= at {
            continue;
        }
        if loss.from >= to {
            break;
        }
        if loss.from > at {
            parts.push((at, loss.from));
        }
        at = loss.to;
    }
    if at < to {
        parts.push((at, to));
    }
    parts
}

fn write(folder: &Folder, uuid: &str, losses: &[Loss]) -> Result<(), SpoolError> {
    let one = |loss: &Loss| {
        json!({
            "from": loss.from,
            "to": loss.to,
            "why": loss.why.as_str(),
            "noted": rfc3339(loss.noted_us),
        })
    };
    let value = json!({
        "format": FORMAT,
        "uuid": uuid,
        "losses": losses.iter().map(one).collect::<Vec<_>>(),
    });
    folder.replace(folder.root(), LOSSES, &sealed::encode(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(from: u64, to: u64) -> Loss {
        Loss {
            from,
            to,
            why: LossWhy::Lost,
            noted_us: 0,
        }
    }

    #[test]
    fn a_range_is_cut_where_losses_are_known() {
        let known = [loss(3, 6), loss(9, 12)];
        assert_eq!(without(&known, 0, 3), [(0, 3)]);
        assert_eq!(without(&known, 3, 6), []);
        assert_eq!(without(&known, 0, 20), [(0, 3), (6, 9), (12, 20)]);
        assert_eq!(without(&known, 4, 10), [(6, 9)]);
        assert_eq!(without(&known, 10, 13), [(12, 13)]);
        assert_eq!(without(&[], 5, 5), []);
    }
}
