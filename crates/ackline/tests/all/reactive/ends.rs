//! The ends of subscriptions and of connections, told apart.

use super::*;

#[tokio::test]
async fn a_subscription_after_a_goodbye_fails_with_its_reason() {
    let (left, right) = pair().await;
    left.connected().await.unwrap();
    right
        .shutdown("closed for today", Some(LONG))
        .await
        .unwrap();
    soon(left.ended()).await;
    let error = soon(left.subscribe("ticks", Demand::automatic(1))).await;
    let error = error.unwrap_err();
    assert!(
        matches!(&error, Error::Failed(why) if &**why == "closed for today"),
        "{error}"
    );
}

#[tokio::test]
async fn an_own_cancel_ends_the_iteration_and_is_an_error_of_a_receive() {
    let (left, right) = pair().await;
    let (mut subscription, _publication) = stream((&left, &right), Demand::automatic(1), 0).await;
    subscription.cancel().unwrap();
    let error = soon(subscription.receive()).await.unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    let next = std::future::poll_fn(|it| Pin::new(&mut subscription).poll_next(it));
    assert!(soon(next).await.is_none());
}

#[tokio::test]
async fn a_publisher_tells_a_lost_connection_from_a_cancel() {
    let (left, right) = pair().await;
    let (_subscription, publication) = stream((&left, &right), Demand::by_hand(1), 0).await;
    publication.publish("one").await.unwrap();
    let waiting = tokio::spawn(async move { publication.publish("two").await });
    left.link().abort();
    let error = soon(waiting).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Ended(_)), "{error}");
}

#[tokio::test]
async fn a_stream_whose_elements_are_at_hand_is_complete_without_further_demand() {
    let (left, right) = pair().await;
    let mut publishers = Publishers::new();
    let two = |_: &str| Ok(Published::iterator(["a", "b"]));
    publishers.add("two", two).unwrap();
    let none = |_: &str| Published::packed(8, Bytes::new()).map_err(|it| it.to_string());
    publishers.add("none", none).unwrap();
    tokio::spawn(async move { publishers.serve(&right).await });
    for (name, count) in [("two", 2), ("none", 0)] {
        let subscription = left.subscribe(name, Demand::by_hand(count)).await.unwrap();
        let all = all(&subscription).await.unwrap();
        assert_eq!(u64::try_from(all.len()), Ok(count));
    }
    let long = "n".repeat(65_536);
    let refused = left.subscribe(&long, Demand::automatic(2)).await.unwrap();
    let error = soon(refused.accepted()).await.unwrap_err();
    assert!(
        matches!(&error, Error::Failed(why) if why.len() < 300),
        "{error}"
    );
    assert!(!left.link().is_ended(), "nothing else is ended");
}
