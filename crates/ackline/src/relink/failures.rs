//! When a link that cannot be resumed is given up (R-RELINK-V24).

use ackline_core::ErrorKind as _;
use ackline_link::End;
use ackline_relink::Kind;

/// Transports in a row that ended in the same violation before the peer's resume.
#[derive(Debug, Default)]
pub(super) struct Failures {
    code: Option<&'static str>,
    count: u32,
}

impl Failures {
    /// Counts the end of a transport; answers whether the link is to be given up.
    pub(super) fn count(&mut self, end: &End<Kind>, has_resumed: bool) -> bool {
        if has_resumed {
            *self = Self::default();
            return false;
        }
        let End::Protocol(error) = end else {
            return false;
        };
        // Silence says nothing of the link's state.
        if matches!(error.kind, Kind::Timeout(_)) {
            return false;
        }
        let code = Some(error.kind.code());
        if self.code != code {
            *self = Self { code, count: 0 };
        }
        self.count += 1;
        self.count >= GIVE_UP_AFTER
    }
}

const GIVE_UP_AFTER: u32 = 3;

#[cfg(test)]
mod tests {
    use ackline_core::{LimitHit, ProtocolError};

    use super::*;

    const SILENT: LimitHit = LimitHit {
        value: 8,
        limit: 7,
        option: "--pong-timeout",
    };

    fn violation(kind: Kind) -> End<Kind> {
        End::Protocol(ProtocolError { kind, offset: 0 })
    }

    #[test]
    fn three_resumes_that_fail_in_the_same_way_are_enough() {
        let unknown = || violation(Kind::UnknownChannel);
        let mut failures = Failures::default();
        for (end, has_resumed, gives_up) in [
            (unknown(), false, false),
            (unknown(), false, false),
            (violation(Kind::ChannelClosing), false, false),
            (unknown(), false, false),
            (violation(Kind::Timeout(SILENT)), false, false),
            (End::Eof, false, false),
            (unknown(), false, false),
            (unknown(), true, false),
            (unknown(), false, false),
            (unknown(), false, false),
            (unknown(), false, true),
        ] {
            assert_eq!(
                failures.count(&end, has_resumed),
                gives_up,
                "{end} {has_resumed}"
            );
        }
    }
}
