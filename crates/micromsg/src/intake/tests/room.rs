//! Memory and its limits.

use super::*;
use crate::intake::destinations::NAME_COST;

#[test]
fn memory_is_let_go_when_a_run_has_landed() {
    let mut pair = Pair::new(100);
    static LARGE: [u8; 50_000] = [7; 50_000];
    for _ in 0..2 {
        pair.send("a", &LARGE);
        pair.flow();
    }
    assert!(pair.intake.held_bytes() > 100_000);
    let runs = pair.runs();
    assert_eq!(runs.len(), 1);
    let held = pair.intake.held_bytes();
    assert_eq!(
        (pair.intake.complete_bytes(), pair.intake.coming_bytes()),
        (held, 0)
    );
    assert_eq!(runs[0].size(), (2, runs[0].held));
    pair.intake.landed(pair.now, runs[0].token);
    assert!(
        pair.intake.held_bytes() < 100,
        "{}",
        pair.intake.held_bytes()
    );
    pair.intake.landed(pair.now, runs[0].token);
    assert_eq!(pair.acknowledged(), []);
    assert!(pair.settle(&runs[0]));
    assert_eq!(pair.acknowledged(), [2]);
    assert_eq!(pair.intake.held_bytes(), 0);
}

#[test]
fn the_price_of_small_messages_and_of_their_properties_is_held() {
    let mut pair = Pair::new(1_000);
    let properties = "k:Tvalue;".repeat(100);
    let message = Outbound {
        destination: "a",
        properties: &properties,
        dotnet_type: None,
    };
    for _ in 0..500 {
        pair.put(message, b"");
    }
    pair.flow();
    let all = 500 * (properties.len() + size_of::<Kept>());
    assert!(
        pair.intake.held_bytes() > all,
        "{}",
        pair.intake.held_bytes()
    );
}

#[test]
fn a_peer_that_begins_more_than_the_memory_holds_is_ended() {
    let peer = Config {
        fragment_size: 60_000,
        ..with(&["batch-ack"])
    };
    let mut pair = Pair::with(IntakeConfig::server(&options(10), memory(160_000)), peer);
    pair.flow();
    static LARGE: [u8; 400_000] = [7; 400_000];
    pair.send("a", &LARGE);
    let Err(Kind::Limit(hit)) = pair.try_flow() else {
        unreachable!();
    };
    assert_eq!((hit.limit, hit.option), (140_000, "--memory"));
    assert!(hit.value > 140_000, "{}", hit.value);
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Closed);
    assert!(
        matches!(pair.told.last(), Some(Event::Error { .. })),
        "an ERROR frame says why"
    );
}

#[test]
fn a_type_that_is_too_long_ends_the_connection() {
    let long = "T".repeat(4_097);
    let message = |dotnet_type| Outbound {
        destination: "a",
        properties: "",
        dotnet_type: Some(dotnet_type),
    };
    let mut pair = Pair::new(100);
    pair.put(message(&long[1..]), b"x");
    pair.flow();
    assert_eq!(attributes(&pair.runs()[0])[0].1.len(), 4_096);
    pair.put(message(&long), b"x");
    let Err(Kind::Limit(hit)) = pair.try_flow() else {
        unreachable!();
    };
    assert_eq!(
        (hit.value, hit.limit, hit.option),
        (4_097, 4_096, "--max-type-bytes")
    );
}

#[test]
fn names_of_destinations_and_their_types_have_a_quota() {
    for (is_typed, most) in [(false, 1_000), (true, 500)] {
        let memory = memory(1_000_000);
        let quota = Arc::clone(&memory.quota);
        let config = IntakeConfig::server(&options(2_000), memory);
        let mut pair = Pair::with(config, with(&["dotnet"]));
        pair.flow();
        let ended = (0..most).find_map(|number| {
            let dotnet_type = "T".repeat(1_000) + &number.to_string();
            let message = Outbound {
                destination: &number.to_string(),
                properties: "",
                dotnet_type: is_typed.then_some(&*dotnet_type),
            };
            pair.put(message, b"x");
            pair.try_flow().err()
        });
        assert!(quota.used() > 400_000, "{}", quota.used());
        let Some(Kind::Limit(hit)) = ended else {
            unreachable!("{ended:?}");
        };
        assert_eq!(hit.option, "--memory");
        drop(pair);
        assert_eq!(quota.used(), 0);
    }
}

#[test]
fn a_type_that_changes_is_charged_once() {
    let memory = memory(1_000_000);
    let quota = Arc::clone(&memory.quota);
    let config = IntakeConfig::server(&options(2_000), memory);
    let mut pair = Pair::with(config, with(&["dotnet"]));
    pair.flow();
    for number in 0..2_000 {
        let dotnet_type = "T".repeat(1_000) + &(number % 7).to_string();
        let message = Outbound {
            destination: "a",
            properties: "",
            dotnet_type: Some(&dotnet_type),
        };
        pair.put(message, b"x");
        pair.flow();
        let held = pair.intake.held_bytes();
        let runs = pair.runs();
        assert!(
            held > runs.len() * 1_000,
            "the attributes are held too: {held}"
        );
        for run in runs {
            pair.settle(&run);
        }
    }
    assert_eq!(quota.used(), wide(1 + 1_001 + NAME_COST));
    assert_eq!(pair.intake.held_bytes(), 1_001, "the type that is in force");
}
