//! Requests are parsed ahead of those that run: wherever the network cuts them, each is answered once, in
//! order, and an error that lies ahead comes behind the replies before it.
#![allow(clippy::unwrap_used)]

use cairn_server::in_process::InProcess;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;

/// More than are parsed at once, of several lengths, with inline requests and empty ones among them.
fn pipeline() -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut replies) = (String::new(), String::new());
    for number in 0..50 {
        let value = "v".repeat(number * 3);
        let length = value.len();
        requests += &format!("*3\r\n$3\r\nSET\r\n$2\r\nk1\r\n${length}\r\n{value}\r\n");
        requests += "\r\n*0\r\nGET k1\r\n";
        replies += &format!("+OK\r\n${length}\r\n{value}\r\n");
    }
    requests += "*1\r\n$4\r\nPING\r\n*1\r\n!1\r\n";
    replies += "+PONG\r\n-ERR Protocol error: expected '$', got '!'\r\n";
    (requests.into_bytes(), replies.into_bytes())
}

#[test]
fn a_pipeline_is_answered_in_order_however_it_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = InProcess::open(dir.path()).unwrap();
    let (requests, expected) = pipeline();
    for size in [1, 2, 3, 7, 50, 333, requests.len()] {
        let (mut client, stream) = tokio::io::duplex(64 * 1024);
        let talk = async {
            for piece in requests.chunks(size) {
                // The connection may be closed before the last bytes of the error.
                let _ = client.write_all(piece).await;
                tokio::task::yield_now().await;
            }
            let mut replies = Vec::new();
            client.read_to_end(&mut replies).await.unwrap();
            replies
        };
        let both = async { tokio::join!(server.serve(stream), talk).1 };
        let replies = LocalSet::new().block_on(&runtime, both);
        let (replies, expected) = (replies.escape_ascii(), expected.escape_ascii());
        assert_eq!(
            replies.to_string(),
            expected.to_string(),
            "pieces of {size}"
        );
    }
}
