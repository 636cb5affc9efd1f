//! Connections by TLS: what is answered over them, and what becomes of others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bellwether_dev_server::{DevServer, ServerSettings};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

const LIMIT: Duration = Duration::from_secs(20);

/// A server with a certificate of its own, and that certificate.
async fn server() -> (DevServer, CertificateDer<'static>) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let settings = ServerSettings { tls: Some(Arc::new(config)), ..ServerSettings::default() };
    (DevServer::start(settings).await.unwrap(), cert.der().clone())
}

/// Sends a word over TLS, and returns the answer.
async fn asked(server: &DevServer, trusted: &CertificateDer<'static>) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(server.address()).await?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"ruok").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn a_client_that_trusts_the_certificate_is_answered_and_another_is_not() {
    let (server, certificate) = server().await;
    let answer = timeout(LIMIT, asked(&server, &certificate)).await.unwrap();
    assert_eq!(answer.unwrap(), "imok");
    let (other, others) = self::server().await;
    let refused = timeout(LIMIT, asked(&server, &others)).await.unwrap();
    assert!(refused.unwrap_err().to_string().contains("certificate"));
    other.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_connection_without_tls_is_closed_and_counts_no_more() {
    let (server, certificate) = server().await;
    let mut plain = TcpStream::connect(server.address()).await.unwrap();
    plain.write_all(b"ruok").await.unwrap();
    plain.shutdown().await.unwrap();
    let mut answer = vec![];
    let closed = timeout(LIMIT, plain.read_to_end(&mut answer)).await.expect("it is closed");
    // What TLS says of it, if anything: no word is answered.
    assert!(closed.is_err() || !answer.ends_with(b"imok"), "{answer:?}");
    // Each such connection of an address counts while it lasts.
    for _ in 0..100 {
        let mut plain = TcpStream::connect(server.address()).await.unwrap();
        plain.shutdown().await.unwrap();
        let _reset = timeout(LIMIT, plain.read_to_end(&mut answer)).await.expect("it is closed");
    }
    let answer = timeout(LIMIT, asked(&server, &certificate)).await.unwrap();
    assert_eq!(answer.unwrap(), "imok");
    server.stop().await;
}
