//! TLS between nodes, in which both sides show who vouches for them.
//!
//! A node is whoever has a certificate of the cluster's authority; so that authority is to sign for nothing else. Names in
//! certificates are not looked at: nodes are found by addresses, which change, and what they are to each other is their
//! number, which the handshake that follows makes sure of. Both sides are of this program, so nothing older than
//! TLS 1.3 is spoken.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// What a node shows to others, and what they have to show.
#[derive(Clone)]
pub struct Tls {
    calls: Arc<ClientConfig>,
    answers: Arc<ServerConfig>,
}

impl Tls {
    /// A node that shows this certificate, and talks to those for whom one of the authorities vouches.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authorities: RootCertStore,
    ) -> Result<Tls, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let provider = Arc::new(ring::default_provider());
        let authorities = Arc::new(authorities);
        let callers =
            WebPkiClientVerifier::builder_with_provider(authorities.clone(), provider.clone())
                .build()
                .map_err(|error| text(&error))?;
        let mut answers = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| text(&error))?
            .with_client_cert_verifier(callers)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| text(&error))?;
        // Connections last, so nobody resumes one.
        answers.send_tls13_tickets = 0;
        let vouched = Vouched {
            authorities,
            provider: provider.clone(),
        };
        let mut calls = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| text(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(vouched))
            .with_client_auth_cert(chain, key)
            .map_err(|error| text(&error))?;
        calls.resumption = Resumption::disabled();
        Ok(Tls {
            calls: Arc::new(calls),
            answers: Arc::new(answers),
        })
    }

    pub(super) async fn call(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        // It is sent along, and nobody asks for it.
        let name = ServerName::IpAddress(stream.peer_addr()?.ip().into());
        let connector = TlsConnector::from(self.calls.clone());
        Ok(connector.connect(name, stream).await?.into())
    }

    pub(super) async fn answer(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(self.answers.clone());
        Ok(acceptor.accept(stream).await?.into())
    }
}

/// Asks who vouches for the one that was called, and nothing else.
#[derive(Debug)]
struct Vouched {
    authorities: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Vouched {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(certificate)?,
            &self.authorities,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}
