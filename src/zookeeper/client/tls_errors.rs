//! Describes problems of a certificate or a revocation list to operators.

use tokio_rustls::rustls::{CertRevocationListError, CertificateError};

/// Describes the problem of a certificate, in words that follow "a certificate that".
pub(crate) fn of_certificate(wrong: &CertificateError) -> String {
    match wrong {
        CertificateError::UnknownRevocationStatus => {
            "no revocation list in zookeeper.tls.ca covers: where there is one list, each CA in a \
             server's chain needs its own. Add what is missing, or take all lists out"
                .into()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not meant for this: have it issued with the extendedKeyUsage serverAuth for servers, \
             clientAuth for members"
                .into()
        }
        // For example, the certificate is of X.509 version 1, or is a CA's own, or its issuer is not a CA.
        other => format!(
            "is not acceptable ({other}): have a CA issue it for this process, as X.509 version 3 (openssl x509 -extfile)"
        ),
    }
}

/// Describes the problem of a revocation list, in words that follow "a revocation list that" or "whose revocation list".
pub(crate) fn of_list(wrong: &CertRevocationListError) -> String {
    format!("is not acceptable ({wrong:?}): have its CA issue a complete list of version 2")
}
