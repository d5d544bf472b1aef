//! The storage of a receiver's events: opened before the receiver listens.

use std::sync::Arc;

use ackline_lumberjack::OnInvalid;
use ackline_spool::{Access, Recovered, Spool, Writer, WriterOptions, now_us, rfc3339};
use serde_json::{Value, json};

use super::operator::Operator;
use super::quarantine::Quarantine;
use super::{Ack, ReceiverError, ReceiverOptions};
use crate::repeats::Repeats;

/// The spool and the parts around it; nothing at all with `--discard`.
#[derive(Default)]
pub(crate) struct Store {
    pub(super) writer: Option<Writer>,
    pub(super) repeats: Option<Arc<Repeats>>,
    pub(super) quarantine: Option<Quarantine>,
    pub(super) operator: Option<Operator>,
    /// The report of a start on a spool that was there before.
    pub(crate) recovered: Option<Value>,
}

impl Store {
    pub(crate) fn open(options: &ReceiverOptions) -> Result<Self, ReceiverError> {
        let Some(dir) = &options.spool else {
            return Ok(Self::default());
        };
        let acks = match &options.ack {
            Ack::Durable => None,
            Ack::Committed(name) => Some(name.clone()),
        };
        let writer_options = WriterOptions {
            acks: acks.clone(),
            ..options.writer.clone()
        };
        let (writer, recovered) = Writer::open(dir, writer_options)?;
        if recovered.created {
            tracing::warn!(code = "receiver.spool_created", dir = %dir.display(), "a new spool was created");
        }
        let access = Access {
            group: options.writer.group,
        };
        let spool = Spool::open_with(dir, access)?;
        let mark = match &acks {
            None => None,
            Some(name) => {
                let consumers = spool.consumers()?;
                let one = consumers.iter().find(|one| one.name == *name);
                one.map(|one| one.committed)
            }
        };
        let quarantine = match options.reader.on_invalid {
            OnInvalid::Refuse => None,
            OnInvalid::Quarantine => Some(Quarantine::new(dir, options)?),
        };
        Ok(Self {
            writer: Some(writer),
            repeats: Some(Arc::new(Repeats::new(spool, mark)?)),
            quarantine,
            operator: Some(Operator::new(Spool::open_with(dir, access)?, dir, access)),
            recovered: line(&recovered),
        })
    }
}

fn line(recovered: &Recovered) -> Option<Value> {
    let line = json!({
        "event": "recovered",
        "time": rfc3339(now_us()),
        "cut_bytes": recovered.cut_bytes,
        "position": recovered.position,
        "lost": recovered.lost.map(|lost| json!({ "from": lost.from, "to": lost.to })),
    });
    (!recovered.created).then_some(line)
}
