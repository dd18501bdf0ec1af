use std::sync::atomic::{AtomicUsize, Ordering};

use openraft::rt::AsyncRuntime;

use super::*;
use crate::runtime::Runtime;

/// Answers with what it was asked; `slow` after a while, `long` at length.
#[derive(Default)]
struct Echo {
    served: AtomicUsize,
}

impl Service for Echo {
    fn serve(&self, from: u64, request: Bytes) -> Later<'static, Bytes> {
        self.served.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            match &request[..] {
                b"slow" => tokio::time::sleep(Duration::from_millis(300)).await,
                b"who" => return Bytes::from(from.to_string()),
                b"long" => return Bytes::from(vec![7; 20 * 1024 * 1024]),
                _ => {}
            }
            request
        })
    }
}

fn identity(node: u64, secret: &str) -> Identity {
    Identity {
        cluster: 1,
        node,
        secret: secret.as_bytes().to_vec(),
    }
}

/// A node 2 that answers, and a node 1 that asks.
async fn pair(secret: &str) -> (Arc<Tcp>, Arc<Echo>, tokio::task::JoinHandle<io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = Arc::new(Echo::default());
    let service = echo.clone();
    let serving = tokio::spawn(async move {
        Tcp::new(identity(2, "secret"))
            .serve(listener, service)
            .await
    });
    let caller = Tcp::new(identity(1, secret));
    caller.set_address(2, address.to_string());
    (caller, echo, serving)
}

const SECOND: Duration = Duration::from_secs(1);

async fn ask(caller: &Tcp, request: &'static str) -> Result<Bytes, CallError> {
    caller.call(2, Bytes::from(request), 5 * SECOND).await
}

#[test]
fn requests_share_a_connection_and_overtake_each_other() {
    Runtime::run(async {
        let (caller, echo, serving) = pair("secret").await;
        assert_eq!(ask(&caller, "who").await.unwrap(), "1");
        let slow = tokio::spawn(caller.call(2, Bytes::from("slow"), SECOND));
        let long = tokio::spawn(caller.call(2, Bytes::from("long"), 20 * SECOND));
        let began = std::time::Instant::now();
        for _ in 0..100 {
            assert_eq!(ask(&caller, "quick").await.unwrap(), "quick");
        }
        assert!(began.elapsed() < 5 * SECOND);
        assert_eq!(slow.await.unwrap().unwrap(), "slow");
        assert_eq!(long.await.unwrap().unwrap(), vec![7; 20 * 1024 * 1024]);
        assert_eq!(echo.served.load(Ordering::Relaxed), 103);
        serving.abort();
    });
}

#[test]
fn nobody_waits_longer_than_asked() {
    Runtime::run(async {
        let (caller, _, serving) = pair("secret").await;
        ask(&caller, "who").await.unwrap();
        let limit = Duration::from_millis(50);
        let answer = caller.call(2, Bytes::from("slow"), limit).await;
        assert_eq!(answer, Err(CallError::TimedOut));
        // The answer that comes too late is nobody's.
        assert_eq!(ask(&caller, "slow").await.unwrap(), "slow");
        serving.abort();
    });
}

#[test]
fn strangers_are_not_served() {
    Runtime::run(async {
        let (caller, echo, serving) = pair("another secret").await;
        assert!(ask(&caller, "who").await.is_err());
        assert_eq!(echo.served.load(Ordering::Relaxed), 0);
        serving.abort();
    });
}

#[test]
fn a_node_that_comes_back_is_found_again() {
    Runtime::run(async {
        let (caller, _, serving) = pair("secret").await;
        ask(&caller, "who").await.unwrap();
        serving.abort();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        caller.set_address(2, "127.0.0.1:1".to_string());
        assert!(ask(&caller, "who").await.is_err());
        caller.set_address(2, address.to_string());
        let echo: Arc<dyn Service> = Arc::new(Echo::default());
        let server = Tcp::new(identity(2, "secret"));
        let serving = tokio::spawn(async move { server.serve(listener, echo).await });
        assert_eq!(ask(&caller, "who").await.unwrap(), "1");
        serving.abort();
    });
}

#[test]
fn without_a_secret_only_this_machine_is_served() {
    Runtime::run(async {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let echo: Arc<dyn Service> = Arc::new(Echo::default());
        let served = Tcp::new(identity(2, "")).serve(listener, echo).await;
        assert!(served.is_err());
    });
}
