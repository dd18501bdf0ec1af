//! TLS: what the parameters ask for, made ready for rustls.
//!
//! The files are read when the server starts, when a parameter of TLS is set, be it to what it is already, and on
//! SIGHUP. What was read holds for connections that come from then on; if anything is wrong, all stays as it was.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use cairn_raft::Tls;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{
    NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier,
};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ProtocolVersion, RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion,
};

use crate::config::Values;

/// What the parameters ask for; or what is wrong with them.
pub fn configure(values: &Values) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(CryptoProvider {
        cipher_suites: cipher_suites(values)?,
        ..ring::default_provider()
    });
    if !values.get("tls-dh-params-file").is_empty() {
        return Err("tls-dh-params-file: there are no ciphers that need it".into());
    }
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(values)?)
        .map_err(|error| format!("tls-protocols, tls-ciphers: {error}"))?;
    let builder = match values.get("tls-auth-clients") {
        b"no" => builder.with_no_client_auth(),
        who => {
            let roots = Arc::new(authorities(values)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier = match who {
                b"optional" => verifier.allow_unauthenticated().build(),
                _ => verifier.build(),
            };
            let verifier = verifier.map_err(|error| format!("tls-ca-cert-file: {error}"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain(values)?, key(values)?)
        .map_err(|error| format!("tls-cert-file and tls-key-file: {error}"))?;
    config.ignore_client_order = values.get("tls-prefer-server-ciphers") == b"yes";
    if values.get("tls-session-caching") == b"yes" {
        // None at all is no limit in Redis; here there is always one.
        let size = match values.number("tls-session-cache-size") {
            0 => 20_480,
            size => size as usize,
        };
        config.session_storage = ServerSessionMemoryCache::new(size);
    } else {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

/// The same for what nodes of a cluster say to each other. There is no choice of ciphers: both sides are of this program.
pub fn between_nodes(values: &Values) -> Result<Tls, String> {
    Tls::new(chain(values)?, key(values)?, authorities(values)?)
        .map_err(|error| format!("tls-cluster: {error}"))
}

fn chain(values: &Values) -> Result<Vec<CertificateDer<'static>>, String> {
    match values.text("tls-cert-file").as_str() {
        "" => Err("tls-cert-file: there has to be one".into()),
        path => certificates(Path::new(path)).map_err(|error| format!("tls-cert-file: {error}")),
    }
}

/// The certificates in a file; there has to be one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
    let found: Vec<_> = found
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(&error))?;
    match found.is_empty() {
        true => Err(wrong(&"there is no certificate in it")),
        false => Ok(found),
    }
}

fn key(values: &Values) -> Result<PrivateKeyDer<'static>, String> {
    if !values.get("tls-key-file-pass").is_empty() {
        return Err(
            "tls-key-file-pass: keys with a password cannot be read; use one without".into(),
        );
    }
    match values.text("tls-key-file").as_str() {
        "" => Err("tls-key-file: there has to be one".into()),
        path => PrivateKeyDer::from_pem_file(path).map_err(|error| {
            format!("tls-key-file: {path}: {error} (one with a password cannot be read)")
        }),
    }
}

/// Those whose word is taken for who a client is.
fn authorities(values: &Values) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let file = values.text("tls-ca-cert-file");
    if !file.is_empty() {
        let wrong = |error: &dyn std::fmt::Display| format!("tls-ca-cert-file: {error}");
        for certificate in certificates(Path::new(&file)).map_err(|error| wrong(&error))? {
            roots.add(certificate).map_err(|error| wrong(&error))?;
        }
    }
    let folder = values.text("tls-ca-cert-dir");
    if !folder.is_empty() {
        let wrong = |error: std::io::Error| format!("tls-ca-cert-dir: {folder}: {error}");
        for entry in fs::read_dir(&folder).map_err(wrong)? {
            // Whatever else is there, and certificates of times past, is no concern of ours.
            let found = certificates(&entry.map_err(wrong)?.path());
            roots.add_parsable_certificates(found.unwrap_or_default());
        }
    }
    if roots.is_empty() {
        return Err(
            "tls-ca-cert-file or tls-ca-cert-dir has to be given unless tls-auth-clients is no, \
             and for tls-cluster"
                .into(),
        );
    }
    Ok(roots)
}

fn versions(values: &Values) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut versions = Vec::new();
    for word in values.text("tls-protocols").split_ascii_whitespace() {
        versions.push(match word.to_ascii_lowercase().as_str() {
            "tlsv1.2" => &TLS12,
            "tlsv1.3" => &TLS13,
            _ => {
                return Err(format!(
                    "tls-protocols: there are TLSv1.2 and TLSv1.3, not {word}"
                ));
            }
        });
    }
    if versions.is_empty() {
        versions = vec![&TLS13, &TLS12];
    }
    Ok(versions)
}

/// The suites of `tls-ciphersuites` for TLS 1.3 and of `tls-ciphers` for 1.2, in their order; all, where none is named.
fn cipher_suites(values: &Values) -> Result<Vec<SupportedCipherSuite>, String> {
    let mut suites = Vec::new();
    for (name, version) in [
        ("tls-ciphersuites", ProtocolVersion::TLSv1_3),
        ("tls-ciphers", ProtocolVersion::TLSv1_2),
    ] {
        let known = ring::ALL_CIPHER_SUITES.iter();
        let known: Vec<SupportedCipherSuite> = known
            .filter(|suite| suite.version().version == version)
            .copied()
            .collect();
        let asked = values.text(name);
        if asked.is_empty() {
            suites.extend(&known);
        }
        for word in asked.split(':').filter(|word| !word.is_empty()) {
            let found = known.iter().find(|suite| suite_name(suite) == word);
            suites.push(*found.ok_or_else(|| {
                let known: Vec<String> = known.iter().map(suite_name).collect();
                format!("{name}: there are {}, not {word}", known.join(", "))
            })?);
        }
    }
    Ok(suites)
}

/// As OpenSSL calls it, and so does Redis.
fn suite_name(suite: &SupportedCipherSuite) -> String {
    let name = suite.suite().as_str().unwrap_or_default();
    if let Some(name) = name.strip_prefix("TLS13_") {
        return format!("TLS_{name}");
    }
    let name = name.trim_start_matches("TLS_").replace("_WITH_", "_");
    let name = name.replace("AES_", "AES").replace('_', "-");
    match name.strip_suffix("-SHA256") {
        Some(name) if name.ends_with("POLY1305") => name.to_string(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_the_names_of_openssl() {
        let mut names: Vec<String> = ring::ALL_CIPHER_SUITES.iter().map(suite_name).collect();
        names.sort();
        assert_eq!(
            names,
            [
                "ECDHE-ECDSA-AES128-GCM-SHA256",
                "ECDHE-ECDSA-AES256-GCM-SHA384",
                "ECDHE-ECDSA-CHACHA20-POLY1305",
                "ECDHE-RSA-AES128-GCM-SHA256",
                "ECDHE-RSA-AES256-GCM-SHA384",
                "ECDHE-RSA-CHACHA20-POLY1305",
                "TLS_AES_128_GCM_SHA256",
                "TLS_AES_256_GCM_SHA384",
                "TLS_CHACHA20_POLY1305_SHA256",
            ]
        );
    }
}
