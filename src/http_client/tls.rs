//! TLS to a server whose certificate is signed by a CA in a file.

use super::without_brackets;
use crate::files::{self, Size};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore};

/// The configuration for TLS to one server.
pub(super) struct TlsClient<'a> {
    ca: &'a Path,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl<'a> TlsClient<'a> {
    /// Returns the configuration for `host`. The server must show a certificate for it that is signed by a CA in the file
    /// `ca`.
    pub(super) fn trusting(ca: &'a Path, host: &str) -> Result<Self, String> {
        let config = client_config(ca).map_err(|problem| format!("{} {problem}", ca.display()))?;
        let name = ServerName::try_from(without_brackets(host).to_owned())
            .map_err(|_| format!("no certificate can be for {host:?}"))?;
        Ok(Self { ca, config: Arc::new(config), name })
    }

    /// Starts TLS over a connection.
    pub(super) async fn connect(self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let stream = TlsConnector::from(self.config).connect(self.name, stream).await;
        stream.map_err(|error| tls_failure(&error, self.ca))
    }
}

/// Returns a configuration that trusts the CAs in the file `ca`. The file is read for each connection, so that it can be
/// replaced while the process runs. The error continues a sentence that begins with the file's path.
fn client_config(ca: &Path) -> Result<ClientConfig, String> {
    let text = files::read(ca, Size::Certificates)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|_| "is not valid PEM")?;
        roots.add(certificate).map_err(|error| format!("holds no certificate: {error}"))?;
    }
    if roots.is_empty() {
        return Err("holds no certificate in PEM (BEGIN CERTIFICATE)".into());
    }
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// Describes why TLS with the server failed.
fn tls_failure(error: &io::Error, ca: &Path) -> String {
    let ca = ca.display();
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(Error::InvalidCertificate(problem)) => match problem {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!("the server shows a certificate that no CA in {ca} has signed")
            }
            // The text of this error has the names in the certificate and the expected name, or the period of validity.
            problem => format!("the server shows a certificate that is not acceptable: {problem}"),
        },
        Some(Error::InvalidMessage(_)) => "the server speaks no TLS on this port".into(),
        Some(_) | None => format!("no TLS: {error}"),
    }
}
