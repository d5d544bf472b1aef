//! Sinks, streams and duplexes: their messages, their cancels, their views as bytes.

use super::*;

async fn fill(sink: Sink, count: u32, bytes: usize, why: &'static str) {
    for number in 0..count {
        let mut message = number.to_be_bytes().to_vec();
        message.resize(bytes.max(4), 0);
        sink.send(message).await.unwrap();
    }
    soon(sink.close(why)).await.unwrap();
}

fn is_whole(messages: &[Bytes], count: u32, bytes: usize) -> bool {
    let mut numbers = 0_u32..;
    messages.len() == count as usize
        && messages.iter().all(|message| {
            message.len() == bytes.max(4)
                && message[..4] == numbers.next().unwrap().to_be_bytes()[..]
        })
}

#[tokio::test]
async fn sinks_streams_and_duplexes_carry_messages_whole_and_in_order() {
    let (left, right) = pair().await;
    let sink = left.open_sink("here").await.unwrap();
    let Incoming::Sink(stream, payload) = next(&right).await else {
        panic!("a sink was opened");
    };
    assert_eq!(payload.to_bytes(), "here");
    // More than any window: credit must follow the reader.
    let (got, ()) = tokio::join!(drain(&stream), fill(sink, 200, 100_000, "bye"));
    assert!(is_whole(&got, 200, 100_000));
    assert_eq!(stream.closed().unwrap(), "bye");

    let stream = left.open_stream(vec![1; 100_000]).await.unwrap();
    let Incoming::Stream(sink, payload) = next(&right).await else {
        panic!("a stream was opened");
    };
    assert_eq!(payload.bytes(), 100_000);
    let (got, ()) = tokio::join!(drain(&stream), fill(sink, 5_000, 10, ""));
    assert!(is_whole(&got, 5_000, 10));

    let (to, from) = left.open_duplex("").await.unwrap();
    let Incoming::Duplex(back, there, _) = next(&right).await else {
        panic!("a duplex was opened");
    };
    let at_right = tokio::spawn(async move {
        while let Some(message) = there.receive().await.unwrap() {
            back.send(message.to_bytes()).await.unwrap();
        }
        back.close("").await.unwrap();
    });
    let (got, ()) = tokio::join!(drain(&from), fill(to, 300, 70_000, ""));
    assert!(is_whole(&got, 300, 70_000));
    soon(at_right).await.unwrap();
    drop((stream, from));
    soon(async {
        while left.stats().own_entities > 0 || right.stats().peer_entities > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn who_reads_slowly_holds_back_nobody_else() {
    let (left, right) = pair().await;
    let stuck = left.open_sink("stuck").await.unwrap();
    let Incoming::Sink(unread, _) = next(&right).await else {
        panic!("a sink was opened");
    };
    let filling = tokio::spawn(fill(stuck, 10_000, 10_000, ""));
    let moving = left.open_sink("moving").await.unwrap();
    let Incoming::Sink(read, _) = next(&right).await else {
        panic!("a sink was opened");
    };
    let (got, ()) = tokio::join!(drain(&read), fill(moving, 1_000, 10_000, ""));
    assert!(is_whole(&got, 1_000, 10_000));
    assert!(!filling.is_finished(), "it waits for credit");
    let held = right.link_stats().charged;
    assert!(
        held < 1 << 20,
        "{held} bytes are held for who does not read"
    );
    assert!(is_whole(&soon(drain(&unread)).await, 10_000, 10_000));
    soon(filling).await.unwrap();
}

#[tokio::test]
async fn a_cancel_reaches_who_writes_and_a_drop_who_reads() {
    let (left, right) = pair().await;
    let sink = left.open_sink("").await.unwrap();
    let Incoming::Sink(stream, _) = next(&right).await else {
        panic!("a sink was opened");
    };
    sink.send("one").await.unwrap();
    assert_eq!(
        soon(stream.receive()).await.unwrap().unwrap().to_bytes(),
        "one"
    );
    let (cancelled, seen) = tokio::join!(soon(stream.cancel("enough")), soon(sink.cancelled()));
    cancelled.unwrap();
    assert_eq!(seen.unwrap(), "enough");
    assert!(matches!(sink.send("two").await, Err(Error::Cancelled(why)) if why == "enough"));
    assert!(matches!(
        soon(sink.close("")).await,
        Err(Error::Cancelled(_))
    ));

    let sink = left.open_sink("").await.unwrap();
    let Incoming::Sink(stream, _) = next(&right).await else {
        panic!("a sink was opened");
    };
    drop(sink);
    assert!(soon(stream.receive()).await.unwrap().is_none());
    assert_eq!(stream.closed().unwrap(), "dropped");

    let stream = left.open_stream("").await.unwrap();
    let Incoming::Stream(sink, _) = next(&right).await else {
        panic!("a stream was opened");
    };
    drop(stream);
    assert_eq!(soon(sink.cancelled()).await.unwrap(), "");
}

#[tokio::test]
async fn a_refused_cancel_changes_nothing() {
    let (left, right) = pair().await;
    let response = left.request("question").await.unwrap();
    let Incoming::Request(request) = next(&right).await else {
        panic!("a request came");
    };
    request.respond("answer").unwrap();
    let sink = right.open_sink("").await.unwrap();
    let Incoming::Sink(stream, _) = next(&left).await else {
        panic!("a sink was opened");
    };
    sink.send("one").await.unwrap();
    soon(sink.close("done")).await.unwrap();
    let is_refused =
        |cancelled| matches!(cancelled, Err(Error::Usage(why)) if why.code == "already_ended");
    assert!(is_refused(response.cancel("late")));
    assert!(is_refused(soon(stream.cancel("late")).await));
    right.link().abort();
    soon(left.ended()).await;
    assert!(matches!(response.cancel("late"), Err(Error::Ended(_))));
    assert!(matches!(
        soon(stream.cancel("late")).await,
        Err(Error::Ended(_))
    ));
    assert_eq!(
        soon(response.response()).await.unwrap().to_bytes(),
        "answer"
    );
    assert_eq!(
        soon(stream.receive()).await.unwrap().unwrap().to_bytes(),
        "one"
    );
    assert!(soon(stream.receive()).await.unwrap().is_none());
    assert_eq!(stream.closed().unwrap(), "done");
}

#[tokio::test]
async fn byte_streams_have_views() {
    let (left, right) = pair().await;
    let mut write = left.open_sink("").await.unwrap().into_write();
    let Incoming::Sink(stream, _) = next(&right).await else {
        panic!("a sink was opened");
    };
    let mut read = stream.into_read();
    let sent: Vec<u8> = (0..=255_u8).cycle().take(1_000_000).collect();
    let writing = {
        let sent = sent.clone();
        tokio::spawn(async move {
            write.write_all(&sent).await.unwrap();
            write.flush().await.unwrap();
            write.shutdown().await.unwrap();
        })
    };
    let mut got = Vec::new();
    soon(read.read_to_end(&mut got)).await.unwrap();
    assert!(got == sent);
    soon(writing).await.unwrap();

    // A writer that ends with a reason is no end of the file.
    let sink = left.open_sink("").await.unwrap();
    let Incoming::Sink(stream, _) = next(&right).await else {
        panic!("a sink was opened");
    };
    sink.send("some").await.unwrap();
    let (closed, read) = tokio::join!(soon(sink.close("broken")), async {
        let mut got = Vec::new();
        soon(stream.into_read().read_to_end(&mut got)).await
    });
    closed.unwrap();
    assert!(read.unwrap_err().to_string().contains("broken"));
}

#[tokio::test]
async fn nothing_is_lost_where_both_halves_end_at_once() {
    for _ in 0..50 {
        let (left, right) = pair().await;
        let (to, from) = left.open_duplex("").await.unwrap();
        let Incoming::Duplex(back, there, _) = next(&right).await else {
            panic!("a duplex was opened");
        };
        for sink in [&to, &back] {
            sink.send("one").await.unwrap();
            sink.send("two").await.unwrap();
        }
        let (there_closed, back_closed) =
            tokio::join!(soon(to.close("left")), soon(back.close("right")));
        there_closed.unwrap();
        back_closed.unwrap();
        for (stream, why) in [(&from, "right"), (&there, "left")] {
            assert_eq!(drain(stream).await, ["one", "two"]);
            assert_eq!(stream.closed().unwrap(), why);
        }
    }
}
