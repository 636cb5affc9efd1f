//! Certificates as an administrator has them made: an authority, and what it signs, in files.

use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType,
    IsCa, Issuer, KeyIdMethod, KeyPair, date_time_ymd,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as texts.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE", self.certificate.der())
    }

    /// Returns an empty revocation list.
    pub(crate) fn revocation_list(&self) -> String {
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        pem("X509 CRL", params.signed_by(&self.issuer).expect("a list").der())
    }

    pub(crate) fn issue(&self, common_name: &str, names: &[&str]) -> Issued {
        self.issue_until(common_name, names, 2100)
    }

    /// Issues a certificate that has expired.
    pub(crate) fn issue_expired(&self, common_name: &str, names: &[&str]) -> Issued {
        self.issue_until(common_name, names, 2021)
    }

    fn issue_until(&self, common_name: &str, names: &[&str], year: i32) -> Issued {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names of hosts");
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 2, 3);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Issued {
            certificate: pem("CERTIFICATE", certificate.der()),
            key: pem("PRIVATE KEY", &key.serialize_der()),
        }
    }
}

impl Issued {
    /// Returns certificate and key in one text, as ZooKeeper wants its key stores.
    pub(crate) fn both(&self) -> String {
        format!("{}{}", self.key, self.certificate)
    }
}

/// Writes the text under another name and renames the file, so that no reader finds half of it.
/// Returns the lines of `zoo.cfg` for a port with TLS, by `server.pem` and the CA in `server-ca.pem`.
pub(crate) fn secure_client_port(directory: &Path, port: u16, client_auth: &str) -> String {
    let place = directory.display();
    format!(
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         secureClientPort={port}\n\
         secureClientPortAddress=127.0.0.1\n\
         ssl.keyStore.location={place}/server.pem\n\
         ssl.keyStore.type=PEM\n\
         ssl.trustStore.location={place}/server-ca.pem\n\
         ssl.trustStore.type=PEM\n\
         ssl.clientAuth={client_auth}\n"
    )
}

pub(crate) fn put(directory: &Path, name: &str, text: &str) -> PathBuf {
    let (path, new) = (directory.join(name), directory.join(format!("{name}.new")));
    fs::write(&new, text).expect("a file in a temporary directory");
    fs::rename(&new, &path).expect("a file in a temporary directory");
    path
}

fn pem(kind: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| str::from_utf8(line).expect("ASCII")).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}
