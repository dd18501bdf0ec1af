//! What serves requests fastest, all else left out: one runtime for all threads, which hands tasks from one to the other, or one
//! for each thread, where a connection stays.
//!
//!   runtimes [ROUNDS] [SECONDS]
//!
//! Each way parses requests and answers `+OK`, in a process of its own. In each round redis-benchmark asks all of them in turn, each
//! about so long, and in the next round in the opposite order. Medians are printed; bench/PROFILE.md tells of them.

use std::io::{BufRead, BufReader, Result as IoResult};
use std::net::TcpListener as StdListener;
use std::process::{Child, Command, Stdio};
use std::thread;

use cairn_resp::{Args, Limits, Parsed, Parser};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

const CLIENTS: &str = "50";
const DEPTHS: [u32; 3] = [1, 16, 64];
const ROUNDS: usize = 7;
const SECONDS: f64 = 1.0;

/// A way to serve, by the words it is told by.
type Way = (&'static str, &'static str);

const WAYS: [Way; 4] = [
    ("apart", "1"),
    ("apart", "2"),
    ("together", "1"),
    ("together", "2"),
];

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| {
        text.parse::<f64>()
            .map_err(|_| format!("no number: {text}"))
    };
    match arguments[..] {
        ["serve", way, threads] => {
            let threads = number(threads)? as usize;
            serve(way, threads).map_err(|error| error.to_string())
        }
        [] => compare(ROUNDS, SECONDS),
        [rounds] => compare(number(rounds)? as usize, SECONDS),
        [rounds, seconds] => compare(number(rounds)? as usize, number(seconds)?),
        _ => Err("runtimes [ROUNDS] [SECONDS]".into()),
    }
}

fn serve(way: &str, threads: usize) -> IoResult<()> {
    let listener = StdListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    listener.set_nonblocking(true)?;
    match way {
        "apart" => serve_apart(listener, threads),
        _ => serve_together(listener, threads),
    }
}

/// As the server does.
fn serve_apart(listener: StdListener, threads: usize) -> IoResult<()> {
    let workers: Vec<_> = (0..threads).map(|_| start_worker()).collect();
    Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let listener = TcpListener::from_std(listener)?;
            for worker in workers.iter().cycle() {
                let stream = listener.accept().await?.0.into_std()?;
                worker.send(stream).ok();
            }
            Ok(())
        })
}

fn start_worker() -> mpsc::UnboundedSender<std::net::TcpStream> {
    let (connections, mut accepted) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .event_interval(256)
            .build_local(Default::default())?;
        runtime.block_on(async {
            while let Some(stream) = accepted.recv().await {
                tokio::task::spawn_local(answer(TcpStream::from_std(stream)?));
            }
            IoResult::Ok(())
        })
    });
    connections
}

fn serve_together(listener: StdListener, threads: usize) -> IoResult<()> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .event_interval(256)
        .build()?
        .block_on(async {
            let listener = TcpListener::from_std(listener)?;
            loop {
                tokio::spawn(answer(listener.accept().await?.0));
            }
        })
}

async fn answer(mut stream: TcpStream) -> IoResult<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut output) = (Vec::with_capacity(64 * 1024), Vec::new());
    let (mut parser, mut args) = (Parser::new(), Args::default());
    let limits = Limits::default();
    while stream.read_buf(&mut input).await? > 0 {
        let mut done = 0;
        while let Ok(Parsed::Complete { consumed }) =
            parser.parse(&input[done..], &limits, &mut args)
        {
            done += consumed;
            output.extend_from_slice(b"+OK\r\n");
        }
        input.drain(..done);
        stream.write_all(&output).await?;
        output.clear();
    }
    Ok(())
}

struct Server {
    process: Child,
    port: String,
}

impl Server {
    fn start((way, threads): Way) -> IoResult<Server> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", way, threads])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut port = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut port)?;
        }
        let port = port.trim().to_owned();
        Ok(Server { process, port })
    }

    fn rate(&self, depth: u32, requests: f64) -> Result<f64, String> {
        let depth = depth.to_string();
        let requests = (requests as u64).to_string();
        let words = [
            "-p", &self.port, "-c", CLIENTS, "-P", &depth, "-n", &requests,
        ];
        let output = Command::new("redis-benchmark")
            .args(words)
            .args(["-d", "100", "-r", "100000", "-t", "set", "--csv"])
            .output()
            .map_err(|error| format!("redis-benchmark: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let fields = text.lines().nth(1).map(|line| line.split(',').nth(1));
        let rate = fields.flatten().map(|field| field.trim_matches('"'));
        let rate = rate.and_then(|field| field.parse().ok());
        rate.ok_or_else(|| format!("redis-benchmark said: {text}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn compare(rounds: usize, seconds: f64) -> Result<(), String> {
    let servers = WAYS.map(|way| Server::start(way).map_err(|error| error.to_string()));
    let servers: Vec<Server> = servers.into_iter().collect::<Result<_, _>>()?;
    for depth in DEPTHS {
        let requests = servers[0].rate(depth, 20_000.0 * f64::from(depth))? * seconds;
        let mut rates = vec![Vec::new(); servers.len()];
        for round in 0..rounds {
            let mut turn: Vec<usize> = (0..servers.len()).collect();
            if round % 2 == 1 {
                turn.reverse();
            }
            for server in turn {
                rates[server].push(servers[server].rate(depth, requests)?);
            }
        }
        let first = &rates[0];
        for ((way, threads), rates) in WAYS.iter().zip(&rates) {
            let ratios = rates.iter().zip(first).map(|(rate, first)| rate / first);
            let (rate, ratio) = (median(rates.clone()), median(ratios.collect()));
            println!("P={depth} {way} {threads}: {rate:.0} a second, {ratio:.2}");
        }
    }
    Ok(())
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
