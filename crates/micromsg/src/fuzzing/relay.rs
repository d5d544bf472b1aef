//! The end of a proxy: what comes goes on as it came, up to the first frame that breaks a rule.

use std::time::Instant;

use ackline_core::{Connection as _, ErrorKind as _, Need};
use bytes::BytesMut;

use crate::relay::Relay;
use crate::{Config, Error, Limits, Role};

/// The first byte chooses the peer's role and the splits.
pub(super) fn relay(now: Instant, data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else {
        return;
    };
    let peer = match choice & 1 {
        0 => Role::Client,
        _ => Role::Server,
    };
    let whole = run(now, peer, bytes, usize::MAX);
    assert!(bytes.starts_with(&whole.passed), "as it came");
    for size in [1, usize::from(choice >> 1).saturating_add(1)] {
        assert_eq!(run(now, peer, bytes, size), whole, "in parts of {size}");
    }
}

/// The bytes that were passed on, and the violation.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    passed: Vec<u8>,
    error: Option<(&'static str, u64)>,
}

fn run(now: Instant, peer: Role, bytes: &[u8], size: usize) -> Outcome {
    let config = Config {
        limits: Limits {
            max_payload_bytes: 300,
            ..Limits::default()
        },
        ..Config::default()
    };
    let mut relay = Relay::new(now, peer, &config, 1_000);
    let (mut input, mut outcome) = (BytesMut::new(), Outcome::default());
    for part in bytes.chunks(size.max(1)) {
        input.extend_from_slice(part);
        loop {
            let need = relay.receive(now, &mut input);
            take(&mut relay, &mut outcome);
            match need {
                Ok(Need::Room | Need::Again) => {}
                Ok(Need::Input { at_least }) => {
                    assert!(at_least > input.len(), "input is asked for that is there");
                    break;
                }
                Err(error) => {
                    let passed = u64::try_from(outcome.passed.len()).unwrap_or(u64::MAX);
                    assert_eq!(error.offset, passed, "all frames before it go on");
                    outcome.error = Some((error.kind.code(), error.offset));
                    return outcome;
                }
            }
        }
    }
    outcome
}

fn take(relay: &mut Relay, outcome: &mut Outcome) {
    loop {
        match relay.take() {
            Ok(Some(passed)) => outcome.passed.extend_from_slice(&passed.bytes),
            Ok(None) | Err(Error::Blocked | Error::Ended(_)) => break,
            Err(error) => unreachable!("{error}"),
        }
    }
    assert_eq!(relay.held_bytes(), 0, "nothing is held that was taken");
}
