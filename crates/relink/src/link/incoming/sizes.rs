//! The payload bytes of messages that were delivered and not consumed.

use std::collections::VecDeque;

/// Sizes of messages in their order, as runs of equal ones.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    runs: VecDeque<Run>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    count: u32,
    bytes_each: usize,
}

impl Sizes {
    /// Adds one message.
    pub(super) fn push(&mut self, bytes: usize) {
        match self.runs.back_mut() {
            Some(run) if run.bytes_each == bytes => run.count = run.count.saturating_add(1),
            _ => self.runs.push_back(Run {
                count: 1,
                bytes_each: bytes,
            }),
        }
    }

    /// Removes the first messages and returns their bytes.
    pub(super) fn take(&mut self, count: u32) -> usize {
        let (mut left, mut bytes) = (count, 0_usize);
        while let Some(run) = self.runs.front_mut() {
            let taken = left.min(run.count);
            let each = usize::try_from(taken).unwrap_or(usize::MAX);
            bytes = bytes.saturating_add(run.bytes_each.saturating_mul(each));
            run.count = run.count.saturating_sub(taken);
            left = left.saturating_sub(taken);
            if run.count > 0 {
                break;
            }
            self.runs.pop_front();
        }
        bytes
    }
}
