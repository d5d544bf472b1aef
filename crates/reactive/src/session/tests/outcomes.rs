//! Outcomes that must not be taken for one another.

use super::*;

#[test]
fn a_whole_element_between_parts_has_no_number() {
    let mut pair = Pair::with(|config| config.parts = true);
    let (own, _) = pair.stream(Demand::automatic(10), 0);
    // Parts of the element 0 about a whole one: onNextPart, onNext, onNextLastPart.
    let mut input = BytesMut::from(&[11, 1, 0, 1, b'a', 7, 1, 1, b'W', 12, 1, 0, 1, b'b'][..]);
    while pair.client.receive(pair.now, &mut input).unwrap() == Need::Again {}
    let parts = std::iter::from_fn(|| pair.client.take_part(own).ok().flatten());
    let parts: Vec<_> = parts.map(|part| (part.element, part.is_last)).collect();
    assert_eq!(parts, [(Some(0), false), (None, true), (Some(0), true)]);
}

#[test]
fn elements_are_not_taken_whole_where_they_come_in_parts() {
    let mut pair = Pair::with(|config| config.parts = true);
    let (own, theirs) = pair.stream(Demand::automatic(10), 0);
    let in_parts = |error| matches!(error, Error::Usage(error) if error.code == "in_parts");
    assert!(in_parts(pair.client.take_element(own).unwrap_err()));
    pair.publish(theirs, &["whole"]);
    assert!(in_parts(pair.client.take_element(own).unwrap_err()));
    assert!(in_parts(pair.client.take_elements(own, 5).unwrap_err()));
    assert!(pair.client.take_part(own).unwrap().is_some(), "it is there");
}

#[test]
fn an_own_cancel_is_no_completion() {
    let mut pair = Pair::new();
    let (own, theirs) = pair.stream(Demand::automatic(10), 4);
    pair.publish(theirs, &["gone"]);
    pair.client.cancel(own).unwrap();
    let client = &mut pair.client;
    assert!(matches!(client.take_element(own), Err(Error::Cancelled)));
    assert!(matches!(
        client.take_elements(own, 5),
        Err(Error::Cancelled)
    ));
    assert!(matches!(client.take_packed(own, 5), Err(Error::Cancelled)));
    assert!(matches!(client.take_part(own), Err(Error::Cancelled)));
    assert!(matches!(client.cancel(own), Err(Error::Usage(_))));
}

#[test]
fn a_goodbye_names_no_option_of_the_end_that_says_it() {
    let mut pair = Pair::with(|config| config.limits.max_element_bytes = 3);
    let (own, theirs) = pair.stream(Demand::automatic(10), 0);
    pair.server
        .publish(theirs, &mut VecDeque::from([Bytes::from("abcd")]))
        .unwrap();
    let (mut out, mut input) = (SendQueue::new(), BytesMut::new());
    pair.server.poll_transmit(pair.now, &mut out);
    input.put(out);
    let error = pair.client.receive(pair.now, &mut input).unwrap_err();
    assert_eq!(error.kind.to_string(), "4 is above 3 (--max-element-bytes)");
    assert!(pair.client.take_element(own).is_err());
    carry(pair.now, &mut pair.client, &mut pair.server);
    let reason = pair.server.goodbye_reason().unwrap();
    assert_eq!(&*reason, "4 is above 3, which is the limit of this end");
}
