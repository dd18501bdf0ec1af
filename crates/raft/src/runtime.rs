//! On what tasks run. Everything but sockets and the log's thread goes through here, so that the simulation can
//! decide what runs when, and what time it is.

#[cfg(not(test))]
pub(crate) use openraft_rt_tokio::TokioRuntime as Runtime;

#[cfg(test)]
pub(crate) use crate::simulation::runtime::Runtime;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use openraft::rt::AsyncRuntime;

pub(crate) type Instant = <Runtime as AsyncRuntime>::Instant;

/// What a trait that others implement returns, where it may take time.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(crate) fn now() -> Instant {
    <Instant as openraft::rt::Instant>::now()
}

pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    // Whoever wants to know when it ends passes a channel.
    drop(Runtime::spawn(task));
}

pub(crate) async fn sleep(duration: Duration) {
    Runtime::sleep(duration).await;
}

/// None if it took longer.
pub(crate) async fn within<T: Send>(
    limit: Duration,
    future: impl Future<Output = T> + Send,
) -> Option<T> {
    Runtime::timeout(limit, future).await.ok()
}
