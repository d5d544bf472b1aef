//! Whether a spool is complete and unchanged.

use crate::{
    Loss, Spool, SpoolError, consumers,
    folder::{MARK, RETIRED},
    group::Group,
    losses, mark,
    read::read_group,
    start::Start,
    walk::Step,
};

/// The result of [`Spool::verify`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Segments looked at.
    pub segments: u64,
    /// Group commits looked at.
    pub groups: u64,
    /// Blocks looked at.
    pub blocks: u64,
    /// Events counted.
    pub events: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Damage that is not noted yet, a sentence each.
    pub problems: Vec<String>,
    /// Positions that are noted as lost or damaged.
    pub losses: Vec<Loss>,
}

impl Spool {
    /// Reads and checks everything that is durable, both slots of the durable mark, and whether the
    /// events that consumers still want are kept. `progress` receives the events done and the
    /// events in all.
    ///
    /// # Errors
    /// The spool cannot be read at all; damage is in the report.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, SpoolError> {
        let (first, durable) = (self.first_kept()?, self.durable()?);
        let mut report = Report {
            problems: mark::problems(&self.mark, &self.folder.root().join(MARK))?,
            ..Report::default()
        };
        if let Err(error @ SpoolError::Corrupt { .. }) = losses::read(&self.folder) {
            report.problems.push(error.to_string());
        }
        let mut buffer = Vec::new();
        let mut walk = self.walk(first..durable)?;
        let mut segment_first = None;
        let mut rebuilt = None;
        while let Some(step) = walk.next()? {
            let (segment, entry, span) = match step {
                Step::Hole(hole) => {
                    self.verify_hole(hole, walk.losses(), &mut report)?;
                    progress(walk.at() - first, durable - first);
                    continue;
                }
                Step::Group(segment, entry, span) => (segment, entry, span),
            };
            if segment_first.replace(segment.first) != Some(segment.first) {
                report.segments += 1;
            }
            if segment.is_rebuilt() && rebuilt.replace(segment.first) != Some(segment.first) {
                report.problems.push(format!(
                    "{}: its index is missing or damaged, and its groups are read by their seals",
                    segment.path.display()
                ));
            }
            let read = read_group(&segment, &entry, std::mem::take(&mut buffer));
            if read.is_err() && walk.looks_elsewhere(&segment, &entry, span.start) {
                continue;
            }
            report.groups += 1;
            report.bytes += u64::from(entry.length);
            match read {
                Ok(group) => {
                    verify_group(&group, &mut report);
                    buffer = group.into_buffer();
                }
                Err(error) => report.problems.push(error.to_string()),
            }
            progress(walk.at() - first, durable - first);
        }
        let gone = self.wanted_and_gone(first, durable)?;
        report.problems.extend(gone);
        Ok(report)
    }

    fn verify_hole(
        &self,
        hole: Loss,
        noted: &[Loss],
        report: &mut Report,
    ) -> Result<(), SpoolError> {
        // Retention continues meanwhile.
        let from = hole.from.max(self.listed.start()?);
        if noted.iter().any(|noted| noted.to == hole.to) {
            report.losses.push(hole);
        } else if from < hole.to {
            let text = format!("positions {from} to {} are missing", hole.to);
            report.problems.push(text);
        }
        Ok(())
    }

    /// Names consumers that want positions below the first kept one, and marks that cannot be read.
    fn wanted_and_gone(&self, first: u64, durable: u64) -> Result<Vec<String>, SpoolError> {
        let (mut problems, mut highest) = (Vec::new(), None);
        // Events that went by age were removed on purpose.
        let noted = self.folder.root().read(RETIRED)?.unwrap_or_default();
        let noted = String::from_utf8_lossy(&noted).trim_end().parse().ok();
        let retired: u64 = noted.unwrap_or(0);
        for name in consumers::names(&self.folder, consumers::MARK)? {
            let read = consumers::read(&self.folder, &name).and_then(|found| {
                let check = |mark: consumers::Mark| mark.check(&self.folder, &self.identity);
                found.map(check).transpose()
            });
            match read {
                Ok(None) => {}
                Ok(Some(mark)) => {
                    highest = highest.max(Some(mark.committed));
                    let from = mark.committed.max(retired);
                    if from < first {
                        problems.push(format!(
                            "positions {from} to {first} are gone and consumer {name:?} has not committed them: \
                             their segments were removed by hand"
                        ));
                    }
                }
                Err(error) => problems.push(error.to_string()),
            }
        }
        // Format 2 names its first position itself.
        let is_said = Start::read(&self.folder)?.is_some();
        if first == durable && durable > retired && highest.is_none() && !is_said {
            problems.push(format!(
                "nothing is left of the {durable} events up to the durable position and no consumer has \
                 committed them: the segments were removed by hand"
            ));
        }
        Ok(problems)
    }
}

/// Checks the bodies of a group, whose blocks were checked when it was read.
fn verify_group(group: &Group, report: &mut Report) {
    for block in group.blocks() {
        if crc32c::crc32c(block.body) != block.checksum {
            report.problems.push(format!(
                "the body at position {} does not fit its checksum",
                block.first_position
            ));
        }
        report.blocks += 1;
        report.events += u64::from(block.count);
    }
}
