//! Options that a sender would refuse are reported without a connection and without a runtime.

use ackline::lumberjack::{Sender, SenderOptions};

fn refused(url: &str, options: SenderOptions) -> String {
    Sender::check(&[url], options)
        .expect_err("it is refused")
        .to_string()
}

#[test]
fn what_open_takes_passes() {
    let hosts = "lumberjack://127.0.0.1:5044,[::1]:5045";
    assert!(Sender::check(&[hosts], SenderOptions::default()).is_ok());
}

#[test]
fn urls_options_and_files_are_looked_at() {
    let usual = SenderOptions::default;
    assert!(refused("http://h:1", usual()).contains("http"));
    let none = SenderOptions {
        batch_events: 0,
        ..usual()
    };
    let text = refused("lumberjack://h:1", none);
    assert!(
        text.starts_with("batch_events is 0; it is a whole number from 1"),
        "{text}"
    );
    let zero = Some(std::time::Duration::ZERO);
    let mut times = [usual(), usual(), usual()];
    times[0].writer.read_timeout = zero;
    times[1].writer.progress_timeout = zero;
    times[2].connect_timeout = std::time::Duration::ZERO;
    let names = ["read_timeout", "progress_timeout", "connect_timeout"];
    for (options, name) in times.into_iter().zip(names) {
        let text = refused("lumberjack://h:1", options);
        assert!(text.starts_with(&format!("{name} is 0ns; it is")), "{text}");
    }
    let mut tls = usual();
    tls.tls.ca = Some("/nowhere/ca.pem".into());
    let why = if cfg!(feature = "tls") {
        "/nowhere/ca.pem"
    } else {
        "build ackline with its feature \"tls\""
    };
    assert!(refused("lumberjack+tls://h:1", tls.clone()).contains(why));
    assert!(refused("lumberjack://h:1", tls).starts_with("ca is an option of TLS"));
}
