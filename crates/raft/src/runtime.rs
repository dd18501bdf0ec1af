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

/// How long the machine has run, in nanoseconds, with the time in which it was suspended. The clock that [`now`] asks stands still
/// then, and others do not.
#[cfg(not(test))]
#[inline]
pub(crate) fn uptime() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a timespec that lives through the call, and Linux always has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// In the simulation no machine is suspended.
#[cfg(test)]
pub(crate) fn uptime() -> u64 {
    now().nanos()
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
