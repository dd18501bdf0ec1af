use std::sync::atomic::{AtomicUsize, Ordering};

use cairn_tests::certificates::Authority;
use openraft::rt::AsyncRuntime;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::runtime::Runtime;

/// Answers with what it was asked; `slow` after a while, `long` at length.
#[derive(Default)]
struct Echo {
    served: AtomicUsize,
}

impl Service for Echo {
    fn admits(&self, caller: &Caller) -> Result<(), String> {
        match caller.incarnation {
            66 => Err("it was never let in".to_string()),
            _ => Ok(()),
        }
    }

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
        incarnation: node,
        run: Run {
            starts: 1,
            number: node,
        },
        secret: secret.as_bytes().to_vec(),
        tls: None,
    }
}

type Pair = (Arc<Tcp>, Arc<Echo>, tokio::task::JoinHandle<io::Result<()>>);

/// A node 2 that answers, and a node 1 that asks.
async fn pair(secret: &str) -> Pair {
    pair_of(identity(1, secret), identity(2, "secret")).await
}

async fn pair_of(caller: Identity, answerer: Identity) -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = Arc::new(Echo::default());
    let service = echo.clone();
    let serving = tokio::spawn(async move { Tcp::new(answerer).serve(listener, service).await });
    let caller = Tcp::new(caller);
    caller.set_address(2, address.to_string());
    (caller, echo, serving)
}

const SECOND: Duration = Duration::from_secs(1);

/// A row that was written on a single machine may be longer than any batch, and goes in one piece of a snapshot.
#[test]
fn what_is_longer_than_a_batch_comes_through() {
    Runtime::run(async {
        let (caller, _echo, _serving) = pair("secret").await;
        let row = Bytes::from(vec![3; crate::MAX_PAYLOAD + (64 << 20)]);
        let back = caller.call(2, row.clone(), 60 * SECOND).await.unwrap();
        assert!(back == row);
        assert_eq!(ask(&caller, "who").await.unwrap(), "1");
    });
}

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
        let unsent = ask(&caller, "who").await;
        assert!(matches!(unsent, Err(CallError::NotSent(_))), "{unsent:?}");
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

#[test]
fn what_was_sent_may_have_been_served() {
    Runtime::run(async {
        let (caller, _, serving) = pair("secret").await;
        ask(&caller, "who").await.unwrap();
        let slow = tokio::spawn(caller.call(2, Bytes::from("slow"), 5 * SECOND));
        tokio::time::sleep(Duration::from_millis(100)).await;
        serving.abort();
        let lost = slow.await.unwrap();
        assert!(matches!(lost, Err(CallError::Unreachable(_))), "{lost:?}");
    });
}

#[test]
fn who_is_forgotten_is_not_called() {
    Runtime::run(async {
        let (caller, _, serving) = pair("secret").await;
        let slow = tokio::spawn(caller.call(2, Bytes::from("slow"), SECOND));
        assert_eq!(ask(&caller, "who").await.unwrap(), "1");
        caller.forget(2);
        assert!(ask(&caller, "who").await.is_err());
        // What was asked before is still answered.
        assert_eq!(slow.await.unwrap().unwrap(), "slow");
        serving.abort();
    });
}

fn tls(authority: &Authority, trusted: &Authority) -> Tls {
    let issued = authority.issue("node");
    let mut authorities = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_file(trusted.certificate()).unwrap();
    authorities.add(trusted).unwrap();
    let chain = vec![CertificateDer::from_pem_file(issued.certificate).unwrap()];
    Tls::new(
        chain,
        PrivateKeyDer::from_pem_file(issued.key).unwrap(),
        authorities,
    )
    .unwrap()
}

fn encrypted(node: u64, secret: &str, tls: Tls) -> Identity {
    Identity {
        tls: Some(tls),
        ..identity(node, secret)
    }
}

#[test]
fn nodes_that_one_authority_vouches_for_talk_in_private() {
    let authority = Authority::new();
    for secret in ["", "secret"] {
        let here = encrypted(1, secret, tls(&authority, &authority));
        let there = encrypted(2, secret, tls(&authority, &authority));
        Runtime::run(async {
            let (caller, _, serving) = pair_of(here, there).await;
            assert_eq!(ask(&caller, "who").await.unwrap(), "1");
            let long = tokio::spawn(caller.call(2, Bytes::from("long"), 20 * SECOND));
            let request = Bytes::from(vec![9; 5 * 1024 * 1024]);
            let answer = caller.call(2, request.clone(), 20 * SECOND).await;
            assert_eq!(answer.unwrap(), request);
            assert_eq!(long.await.unwrap().unwrap(), vec![7; 20 * 1024 * 1024]);
            // A certificate that is renewed holds for connections that come.
            caller.renew(tls(&authority, &authority));
            let address = caller.peers.lock()[&2].address.clone();
            caller.forget(2);
            caller.set_address(2, address);
            assert_eq!(ask(&caller, "who").await.unwrap(), "1");
            serving.abort();
        });
    }
}

#[test]
fn nodes_that_another_authority_vouches_for_are_refused() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let ours_only = || tls(&ours, &ours);
    let plain = |node| identity(node, "");
    let strangers = [
        // Neither trusts the other.
        (
            encrypted(1, "", tls(&theirs, &theirs)),
            encrypted(2, "", ours_only()),
        ),
        // The caller would trust, but is not trusted; and the other way around.
        (
            encrypted(1, "", tls(&theirs, &ours)),
            encrypted(2, "", ours_only()),
        ),
        (
            encrypted(1, "", ours_only()),
            encrypted(2, "", tls(&theirs, &ours)),
        ),
        // One of them talks in the open.
        (plain(1), encrypted(2, "", ours_only())),
        (encrypted(1, "", ours_only()), plain(2)),
        // A certificate does not stand for the secret.
        (
            encrypted(1, "another", ours_only()),
            encrypted(2, "secret", ours_only()),
        ),
    ];
    for (at, (caller, answerer)) in strangers.into_iter().enumerate() {
        Runtime::run(async move {
            let (caller, echo, serving) = pair_of(caller, answerer).await;
            assert!(ask(&caller, "who").await.is_err(), "{at}");
            assert_eq!(echo.served.load(Ordering::Relaxed), 0, "{at}");
            serving.abort();
        });
    }
}

#[test]
fn a_caller_without_a_certificate_is_refused() {
    let authority = Authority::new();
    let answerer = encrypted(2, "", tls(&authority, &authority));
    let mut authorities = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_file(authority.certificate()).unwrap();
    authorities.add(trusted).unwrap();
    let nameless = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(authorities)
        .with_no_client_auth();
    Runtime::run(async {
        let (caller, echo, serving) = pair_of(identity(1, ""), answerer).await;
        let address = caller.peers.lock()[&2].address.clone();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connector = TlsConnector::from(Arc::new(nameless));
        // By the rules of TLS 1.3 it learns that it is refused when it says something.
        let mut stream = connector.connect(name, stream).await.unwrap();
        assert!(
            handshake::call(&mut stream, &Tcp::new(identity(1, "")).introduction(), 2)
                .await
                .is_err()
        );
        assert_eq!(echo.served.load(Ordering::Relaxed), 0);
        serving.abort();
    });
}

#[test]
fn with_tls_other_machines_are_served() {
    let authority = Authority::new();
    let elsewhere = "192.0.2.1:7".parse().unwrap();
    assert!(may_talk(&identity(1, ""), elsewhere).is_err());
    assert!(may_talk(&identity(1, "secret"), elsewhere).is_ok());
    let encrypted = encrypted(1, "", tls(&authority, &authority));
    assert!(may_talk(&encrypted, elsewhere).is_ok());
}

#[test]
fn who_is_not_admitted_hears_why() {
    Runtime::run(async {
        let unknown = Identity {
            incarnation: 66,
            ..identity(1, "secret")
        };
        let (caller, echo, serving) = pair_of(unknown, identity(2, "secret")).await;
        let refused = connect_to(&caller).await.expect_err("it is refused");
        assert_eq!(
            refused.to_string(),
            "it refuses this node: it was never let in"
        );
        assert_eq!(echo.served.load(Ordering::Relaxed), 0);
        serving.abort();
    });
}

/// Two processes that have copies of one directory call themselves node 1: the first that was heard stays.
#[test]
fn a_second_process_of_a_node_is_not_served() {
    Runtime::run(async {
        let (first, echo, serving) = pair("secret").await;
        assert_eq!(ask(&first, "who").await.unwrap(), "1");
        let address = first.peers.lock()[&2].address.clone();
        let copied = |starts| {
            let run = Run { starts, number: 99 };
            let copy = Tcp::new(Identity {
                run,
                ..identity(1, "secret")
            });
            copy.set_address(2, address.clone());
            copy
        };
        let copy = copied(1);
        let refused = connect_to(&copy).await.expect_err("it is refused");
        assert!(refused.to_string().contains("an old copy"), "{refused}");
        let (told, mut ends) = tokio::sync::mpsc::unbounded_channel();
        copy.when_outdated(move |why| {
            told.send(why.to_string()).ok();
        });
        assert!(ask(&copy, "who").await.is_err());
        assert!(ends.recv().await.unwrap().contains("an old copy"));
        let speaking = first.clone();
        let speaking = tokio::spawn(async move {
            while ask(&speaking, "who").await.is_ok() {
                tokio::time::sleep(SECOND / 10).await;
            }
        });
        let copy = copied(2);
        let refused = connect_to(&copy).await.expect_err("it is refused");
        assert!(refused.to_string().contains("another process"), "{refused}");
        assert!(!speaking.is_finished());
        speaking.abort();
        // It says nothing any more: the other takes its place, and it is not heard again.
        assert_eq!(ask(&copy, "who").await.unwrap(), "1");
        let served = echo.served.load(Ordering::Relaxed);
        assert!(ask(&first, "who").await.is_err());
        assert!(connect_to(&first).await.is_err());
        assert_eq!(echo.served.load(Ordering::Relaxed), served);
        serving.abort();
    });
}

/// What comes of a connection to node 2 beside the one that there is.
async fn connect_to(caller: &Tcp) -> io::Result<()> {
    let address = caller.peers.lock()[&2].address.clone();
    let (introduction, processes) = (caller.introduction(), &caller.company.processes);
    let connected = link::connect(&introduction, processes, 2, &address).await;
    connected.map(|_| ())
}
