//! Random operations by two ends against a model of demand.

use std::collections::VecDeque;

use ackline_core::{Connection as _, SendQueue};
use bytes::{Buf as _, Bytes};
use proptest::prelude::*;

use super::*;

/// An operation; the first number chooses a stream.
#[derive(Debug, Clone)]
enum Op {
    /// Demand, low-water mark (both cut to fit), and the size of the elements.
    Subscribe(u64, u64, u64),
    Publish(usize, usize),
    Take(usize, usize),
    TakePacked(usize, usize),
    Complete(usize),
    Cancel(usize),
    /// So many bytes go from the client, and from the server.
    Carry(usize, usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (1_u64..20, 0_u64..20, 0_u64..4)
            .prop_map(|(most, low, size)| Op::Subscribe(most, low, size)),
        (0..8_usize, 1..20_usize).prop_map(|(at, count)| Op::Publish(at, count)),
        (0..8_usize, 1..20_usize).prop_map(|(at, count)| Op::Take(at, count)),
        (0..8_usize, 1..40_usize).prop_map(|(at, most)| Op::TakePacked(at, most)),
        (0..8_usize).prop_map(Op::Complete),
        (0..8_usize).prop_map(Op::Cancel),
        (0..60_usize, 0..60_usize).prop_map(|(one, other)| Op::Carry(one, other)),
    ]
}

/// A stream, and what both ends did with it.
struct Stream {
    own: Serial,
    theirs: Option<Serial>,
    most: u64,
    size: u64,
    published: Vec<Vec<u8>>,
    taken: Vec<Vec<u8>>,
    is_over: bool,
    is_cancelled: bool,
}

struct World {
    now: Instant,
    client: Session,
    server: Session,
    /// Bytes on their way to the server and to the client.
    wires: [BytesMut; 2],
    streams: Vec<Stream>,
    number: u8,
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let config = || Config {
            split_threshold: 5,
            ..Config::default()
        };
        Self {
            now,
            client: Session::new(now, Role::Client, config(), 30),
            server: Session::new(now, Role::Server, config(), 30),
            wires: [BytesMut::new(), BytesMut::new()],
            streams: Vec::new(),
            number: 0,
        }
    }

    fn carry(&mut self, counts: [usize; 2]) -> bool {
        let mut moved = false;
        let ends = [(&mut self.client, 0), (&mut self.server, 1)];
        for (end, to) in ends {
            let mut out = SendQueue::new();
            end.poll_transmit(self.now, &mut out);
            while out.has_remaining() {
                self.wires[to].extend_from_slice(out.chunk());
                out.advance(out.chunk().len());
            }
        }
        for (end, from, count) in [
            (&mut self.server, 0, counts[0]),
            (&mut self.client, 1, counts[1]),
        ] {
            let wire = &mut self.wires[from];
            let count = count.min(wire.len());
            let mut input = wire.split_to(count);
            let before = input.len();
            while end
                .receive(self.now, &mut input)
                .expect("both keep the rules")
                == Need::Again
            {}
            moved |= input.len() < before;
            input.unsplit(std::mem::take(wire));
            *wire = input;
        }
        self.accept();
        moved
    }

    fn accept(&mut self) {
        while let Ok(Some(arrival)) = self.server.accept() {
            let at: usize = arrival.publisher.parse().unwrap();
            let stream = &mut self.streams[at];
            self.server.admit(arrival.serial, stream.size).unwrap();
            stream.theirs = Some(arrival.serial);
        }
    }

    fn element(&mut self, size: u64) -> Bytes {
        self.number = self.number.wrapping_add(1);
        let size = if size == 0 {
            u64::from(self.number % 9)
        } else {
            size
        };
        vec![self.number; usize::try_from(size).unwrap()].into()
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Subscribe(most, low, size) => {
                if self.streams.len() < 8 {
                    let demand = Demand::with_low_water(most, low.min(most - 1));
                    let name = self.streams.len().to_string();
                    let own = self.client.subscribe(&name, demand).unwrap();
                    self.streams.push(Stream {
                        own,
                        theirs: None,
                        most,
                        size,
                        published: Vec::new(),
                        taken: Vec::new(),
                        is_over: false,
                        is_cancelled: false,
                    });
                }
            }
            Op::Publish(at, count) => self.publish(at, count),
            Op::Take(at, count) => self.take(at, |client, own| {
                let taken = client.take_elements(own, count)?;
                Ok(taken.iter().map(|it| it.to_bytes().to_vec()).collect())
            }),
            Op::TakePacked(at, most) => {
                if let Some(size) = self.streams.get(at).map(|it| it.size).filter(|it| *it > 0) {
                    let size = usize::try_from(size).unwrap();
                    self.take(at, |client, own| {
                        let taken = client.take_packed(own, most)?.unwrap_or_default();
                        assert!(taken.len() <= most.max(size), "{} of {most}", taken.len());
                        Ok(taken.chunks(size).map(<[u8]>::to_vec).collect())
                    });
                }
            }
            Op::Complete(at) => {
                if let Some(stream) = self.streams.get_mut(at).filter(|it| !it.is_over)
                    && let Some(theirs) = stream.theirs
                {
                    let done = self.server.complete(theirs);
                    assert!(done.is_ok() || stream.is_cancelled, "{done:?}");
                    stream.is_over = true;
                }
            }
            Op::Cancel(at) => {
                if let Some(stream) = self.streams.get_mut(at) {
                    self.client.drop_subscription(stream.own);
                    stream.is_cancelled = true;
                }
            }
            Op::Carry(one, other) => drop(self.carry([one, other])),
        }
    }

    fn publish(&mut self, at: usize, count: usize) {
        let Some(stream) = self.streams.get(at).filter(|it| !it.is_over) else {
            return;
        };
        let (Some(theirs), size) = (stream.theirs, stream.size) else {
            return;
        };
        let elements: Vec<Bytes> = (0..count).map(|_| self.element(size)).collect();
        let mut left: VecDeque<Bytes> = elements.clone().into();
        let done = self.server.publish(theirs, &mut left);
        let stream = &mut self.streams[at];
        match done {
            Ok(()) => assert!(left.len() < count, "at least one"),
            Err(Error::Blocked) => assert_eq!(left.len(), count),
            Err(error) => assert!(stream.is_cancelled, "{error}"),
        }
        let sent = &elements[..count - left.len()];
        stream.published.extend(sent.iter().map(|it| it.to_vec()));
    }

    fn take(
        &mut self,
        at: usize,
        take: impl FnOnce(&mut Session, Serial) -> Result<Vec<Vec<u8>>, Error>,
    ) {
        let Some(stream) = self.streams.get_mut(at).filter(|it| !it.is_cancelled) else {
            return;
        };
        match take(&mut self.client, stream.own) {
            Ok(taken) => stream.taken.extend(taken),
            Err(Error::Blocked) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Elements that a subscriber has asked for and not taken are never more than it wanted.
    fn check(&self) {
        for stream in self.streams.iter().filter(|it| !it.is_cancelled) {
            let untaken = stream.published.len() - stream.taken.len();
            let untaken = u64::try_from(untaken).unwrap();
            assert!(untaken <= stream.most, "{untaken} above {}", stream.most);
            assert!(
                stream.published.starts_with(&stream.taken),
                "in order, and none lost"
            );
            let requested = self.client.requested(stream.own).unwrap_or(0);
            assert!(requested <= stream.most);
        }
    }

    /// Everything that was published comes, and nothing stays charged.
    fn settle(&mut self) {
        while self.carry([usize::MAX, usize::MAX]) {}
        for at in 0..self.streams.len() {
            for _ in 0..1_000 {
                self.step(&Op::Take(at, 100));
                self.carry([usize::MAX, usize::MAX]);
            }
            let stream = &self.streams[at];
            if !stream.is_cancelled {
                assert_eq!(stream.published, stream.taken);
                let end = self.client.take_element(stream.own);
                match (stream.is_over, end) {
                    (true, Ok(None)) | (false, Err(Error::Blocked)) => {}
                    (_, end) => panic!("{end:?}"),
                }
                if !stream.is_over {
                    let requested = self.client.requested(stream.own).unwrap();
                    assert!(requested > 0, "the stream goes on");
                }
            }
            self.step(&Op::Complete(at));
            self.step(&Op::Cancel(at));
            if let Some(theirs) = self.streams[at].theirs {
                self.server.drop_publication(theirs);
            }
        }
        while self.carry([usize::MAX, usize::MAX]) {}
        assert_eq!((self.client.held_bytes(), self.server.held_bytes()), (0, 0));
        assert_eq!(
            (self.client.open(), self.server.open()),
            ((0, 0, 0), (0, 0, 0))
        );
        assert_eq!(self.client.inboxes.len() + self.server.outlets.len(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn demand_bounds_what_waits_and_no_element_is_lost(
        ops in proptest::collection::vec(op(), 0..150),
    ) {
        let mut world = World::new();
        for op in &ops {
            world.step(op);
            world.check();
        }
        world.settle();
    }
}
