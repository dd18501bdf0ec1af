//! Waiting for what a cluster does by itself.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::At;
use super::client::Client;

const BETWEEN: Duration = Duration::from_millis(200);
/// For how long a node may fail to answer: it may be the leader of the map that changes.
const SILENCE: Duration = Duration::from_secs(30);
/// What takes a moment takes no longer, unless something is in the way.
const MOMENT: Duration = Duration::from_secs(60);

pub enum Until {
    Done,
    /// How far it is.
    Later(String),
    /// Why it will not come to that.
    Never(String),
}

/// Waits for what moves data, however much that is.
pub fn wait(
    at: &At,
    client: Client,
    ask: impl FnMut(&mut Client) -> Result<Until, String>,
) -> Result<(), String> {
    wait_until(at, client, None, ask)
}

/// Waits for what takes a moment.
pub fn wait_briefly(
    at: &At,
    client: Client,
    ask: impl FnMut(&mut Client) -> Result<Until, String>,
) -> Result<(), String> {
    wait_until(at, client, Some(Instant::now() + MOMENT), ask)
}

/// Asks again and again, and tells of progress when there is some. That a node does not know, or does not answer, may pass.
fn wait_until(
    at: &At,
    client: Client,
    deadline: Option<Instant>,
    mut ask: impl FnMut(&mut Client) -> Result<Until, String>,
) -> Result<(), String> {
    let mut client = Ok(client);
    let mut told = String::new();
    let mut heard = Instant::now();
    loop {
        let asked = match &mut client {
            Ok(client) => ask(client),
            Err(error) => Err(std::mem::take(error)),
        };
        match asked {
            Ok(Until::Done) => return Ok(()),
            Ok(Until::Never(why)) => return Err(why),
            Ok(Until::Later(progress)) => {
                heard = Instant::now();
                if progress != told {
                    eprintln!("{progress}");
                    told = progress;
                }
            }
            Err(error) if heard.elapsed() > SILENCE => return Err(error),
            Err(_) => client = at.connect(),
        }
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Err(format!("{told}; the cluster goes on with it"));
        }
        sleep(BETWEEN);
    }
}
