//! When a link that cannot be resumed is given up (R-RELINK-V24).

use ackline_core::ErrorKind as _;

use crate::Kind;

/// Transports in a row that ended in the same violation before the peer's resume.
#[derive(Debug, Default)]
pub struct Failures {
    code: Option<&'static str>,
    count: u32,
}

impl Failures {
    /// Counts the end of a transport, which may be a violation; returns whether the link is to be given up.
    pub fn count(&mut self, violation: Option<&Kind>, has_resumed: bool) -> bool {
        if has_resumed {
            *self = Self::default();
            return false;
        }
        // Silence says nothing of the link's state.
        let Some(kind) = violation.filter(|kind| !matches!(kind, Kind::Timeout(_))) else {
            return false;
        };
        let code = Some(kind.code());
        if self.code != code {
            *self = Self { code, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count >= GIVE_UP_AFTER
    }
}

const GIVE_UP_AFTER: u32 = 3;

#[cfg(test)]
mod tests {
    use ackline_core::LimitHit;

    use super::*;

    const SILENT: LimitHit = LimitHit {
        value: 8,
        limit: 7,
        option: "--pong-timeout",
    };

    #[test]
    fn three_resumes_that_fail_in_the_same_way_are_enough() {
        let unknown = || Some(Kind::UnknownChannel);
        let mut failures = Failures::default();
        for (end, has_resumed, gives_up) in [
            (unknown(), false, false),
            (unknown(), false, false),
            (Some(Kind::ChannelClosing), false, false),
            (unknown(), false, false),
            (Some(Kind::Timeout(SILENT)), false, false),
            (None, false, false),
            (unknown(), false, false),
            (unknown(), true, false),
            (unknown(), false, false),
            (unknown(), false, false),
            (unknown(), false, true),
        ] {
            assert_eq!(
                failures.count(end.as_ref(), has_resumed),
                gives_up,
                "{end:?} {has_resumed}"
            );
        }
    }
}
