//! A connection of the command line to a node.

use std::fmt;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cairn_resp::{Protocol, Value, Writer, decode};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const CONNECTING: Duration = Duration::from_secs(5);
/// A node that has nothing to say for so long is given up, unless it was asked for something that takes longer.
const ANSWERING: Duration = Duration::from_secs(60);

/// How to come in.
#[derive(clap::Args, Clone)]
pub struct Connecting {
    /// The user to be.
    #[arg(long, default_value = "default")]
    user: String,
    /// The password; it can be given in the environment as CAIRN_PASSWORD, where others do not see it.
    #[arg(long)]
    password: Option<String>,
    /// Connect by TLS.
    #[arg(long)]
    tls: bool,
    /// Certificates that the nodes' own must be vouched for by (PEM).
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_ca: Option<PathBuf>,
    /// A certificate to show (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl Connecting {
    /// Which of a node's ports is for such a connection.
    pub fn port_of(&self, plain: u16, tls: u16) -> u16 {
        match self.tls {
            true => tls,
            false => plain,
        }
    }
}

/// Where a node listens for clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = || format!("{text:?} is no address: write it as host:port");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().map_err(|_| wrong())?;
        match host.is_empty() || port == 0 {
            true => Err(wrong()),
            false => Ok(Address {
                host: host.to_string(),
                port,
            }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

pub struct Client {
    address: Address,
    /// The address behind the name.
    pub ip: IpAddr,
    stream: Box<dyn Stream>,
    /// The same, to set how long to wait.
    socket: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub fn connect(address: &Address, how: &Connecting) -> Result<Client, String> {
        let fail = |why: &dyn fmt::Display| format!("{address}: {why}");
        let socket = open(address).map_err(|error| fail(&error))?;
        let ip = socket.peer_addr().map_err(|error| fail(&error))?.ip();
        let again = socket.try_clone().map_err(|error| fail(&error))?;
        let stream: Box<dyn Stream> = match how.tls {
            false => Box::new(socket),
            true => Box::new(encrypted(address, how, socket).map_err(|error| fail(&error))?),
        };
        let mut client = Client {
            address: address.clone(),
            ip,
            stream,
            socket: again,
            input: Vec::new(),
        };
        let password = how.password.clone();
        if let Some(password) = password.or_else(|| std::env::var("CAIRN_PASSWORD").ok()) {
            client.ask(&["AUTH", &how.user, &password])?;
        }
        Ok(client)
    }

    pub fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Value, String> {
        self.wait_for(ANSWERING);
        self.answer(words)
    }

    /// The same, for as long as it takes.
    pub fn ask_patiently(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Value, String> {
        self.wait_for(Duration::ZERO);
        self.answer(words)
    }

    fn wait_for(&self, limit: Duration) {
        let limit = (!limit.is_zero()).then_some(limit);
        // A socket that cannot be told will be found out when it is read.
        let _ = self.socket.set_read_timeout(limit);
    }

    fn answer(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Value, String> {
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        let mut request = Vec::new();
        Writer::new(&mut request, Protocol::Resp2).request(&words);
        let answer = self.exchange(&request);
        match answer.map_err(|why| format!("{}: {why}", self.address))? {
            Value::Error(text) => {
                let text = String::from_utf8_lossy(&text);
                let text = text.strip_prefix("ERR ").unwrap_or(&text);
                Err(format!("{}: {text}", self.address))
            }
            value => Ok(value),
        }
    }

    fn exchange(&mut self, request: &[u8]) -> Result<Value, String> {
        let wrong = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                "no answer in time".to_string()
            }
            _ => error.to_string(),
        };
        self.stream.write_all(request).map_err(wrong)?;
        self.stream.flush().map_err(wrong)?;
        loop {
            let decoded = decode(&self.input).map_err(|error| error.to_string())?;
            if let Some((value, length)) = decoded {
                self.input.drain(..length);
                return Ok(value);
            }
            let mut piece = [0; 16 * 1024];
            match self.stream.read(&mut piece).map_err(wrong)? {
                0 => return Err("it has closed the connection".into()),
                length => self.input.extend_from_slice(&piece[..length]),
            }
        }
    }
}

fn open(address: &Address) -> std::io::Result<TcpStream> {
    let mut failure = std::io::ErrorKind::NotFound.into();
    for address in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECTING) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn encrypted(
    address: &Address,
    how: &Connecting,
    socket: TcpStream,
) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let in_file = |path: &Path, error: &dyn fmt::Display| format!("{}: {error}", path.display());
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, String> {
        let found = CertificateDer::pem_file_iter(path).map_err(|error| in_file(path, &error))?;
        let found = found.collect::<Result<Vec<_>, _>>();
        found.map_err(|error| in_file(path, &error))
    };
    let mut roots = RootCertStore::empty();
    let Some(ca) = &how.tls_ca else {
        return Err("--tls needs --tls-ca: who vouches for the nodes".into());
    };
    for certificate in certificates(ca)? {
        roots
            .add(certificate)
            .map_err(|error| in_file(ca, &error))?;
    }
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let config = match (&how.tls_cert, &how.tls_key) {
        (Some(certificate), Some(key)) => {
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| in_file(key, &error))?;
            let own = builder.with_client_auth_cert(certificates(certificate)?, secret);
            own.map_err(|error| in_file(certificate, &error))?
        }
        _ => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from(address.host.clone()).map_err(|error| error.to_string())?;
    let connection =
        ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    Ok(StreamOwned::new(connection, socket))
}

/// What a reply says that is a list of names and values.
pub struct Fields(Vec<(String, String)>);

impl Fields {
    pub fn of(value: Value) -> Result<Fields, String> {
        let Value::Array(items) = value else {
            return Err(
                "it answers otherwise than expected: is it a Cairn of this version?".into(),
            );
        };
        let mut fields = Vec::new();
        for pair in items.chunks_exact(2) {
            fields.push((text_of(&pair[0]), text_of(&pair[1])));
        }
        Ok(Fields(fields))
    }

    pub fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(field, _)| field == name);
        found.map_or("", |(_, value)| value)
    }

    /// Zero if it is not there.
    pub fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }
}

pub fn text_of(value: &Value) -> String {
    match value {
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => {
            String::from_utf8_lossy(text).into_owned()
        }
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_hosts_and_ports() {
        let address: Address = "10.0.0.1:7001".parse().unwrap();
        assert_eq!((address.host.as_str(), address.port), ("10.0.0.1", 7001));
        let address: Address = "[::1]:7001".parse().unwrap();
        assert_eq!((address.host.as_str(), address.port), ("::1", 7001));
        assert_eq!(address.to_string(), "[::1]:7001");
        for wrong in ["", "host", "host:", ":1", "host:0", "host:70000", "a:b"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
