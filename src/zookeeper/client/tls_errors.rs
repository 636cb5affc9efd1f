//! Describes problems of a certificate or a revocation list to operators, and how to fix them: the TLS library's messages
//! are for programmers.

use tokio_rustls::rustls::{CertRevocationListError, CertificateError};

/// Describes the problem of a certificate, in words that follow "a certificate that".
pub(crate) fn of_certificate(wrong: &CertificateError) -> String {
    use CertificateError as C;
    match wrong {
        C::BadEncoding => "cannot be read: reissue it".into(),
        C::UnhandledCriticalExtension => {
            "has a critical extension that is not known here: have it issued without".into()
        }
        C::UnknownRevocationStatus => {
            "no revocation list in zookeeper.tls.ca covers: where there is one list, each CA in a \
             server's chain needs its own. Add what is missing, or take all lists out"
                .into()
        }
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => {
            "is not meant for this: have it issued with the extendedKeyUsage serverAuth for servers, \
             clientAuth for members"
                .into()
        }
        C::UnsupportedSignatureAlgorithmContext { .. }
        | C::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "is signed in a way that is not accepted: have it signed with SHA-256 or better".into()
        }
        // The error of the library below is hidden behind a trait: only its text tells one from another.
        C::Other(other) => match format!("{:?}", other.0).as_str() {
            "UnsupportedCertVersion" => {
                "is of X.509 version 1, which is not accepted: have it issued with extensions, which \
                 makes it version 3 (openssl x509 -req -extfile)"
                    .into()
            }
            "CaUsedAsEndEntity" => {
                "is a CA's own: have that CA issue one for this process".into()
            }
            "EndEntityUsedAsCa" => {
                "was signed by a certificate that is not a CA's: have a CA issue it (basicConstraints CA:TRUE)"
                    .into()
            }
            name => format!("is not acceptable ({name}): reissue it"),
        },
        other => format!("is not acceptable ({other:?}): reissue it"),
    }
}

/// Describes the problem of a revocation list, in words that follow "a revocation list that".
pub(crate) fn of_list(wrong: &CertRevocationListError) -> String {
    use CertRevocationListError as L;
    match wrong {
        L::ParseError | L::UnsupportedCrlVersion => {
            "cannot be read (version 1 is not supported): have it issued as version 2 (crl_extensions \
             in openssl's configuration)"
                .into()
        }
        L::BadSignature => "its CA did not sign: fetch it from the CA again".into(),
        L::IssuerInvalidForCrl => {
            "its CA may not sign: have the CA's certificate issued with the keyUsage cRLSign".into()
        }
        L::UnsupportedDeltaCrl | L::UnsupportedIndirectCrl => {
            "is not complete in itself: take the CA's complete list".into()
        }
        other => format!("is not acceptable ({other:?}): have a new one issued"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio_rustls::rustls::OtherError;

    #[test]
    fn each_error_says_what_is_wrong_and_how_to_mend_it() {
        #[derive(Debug)]
        struct CaUsedAsEndEntity;
        impl std::fmt::Display for CaUsedAsEndEntity {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self:?}")
            }
        }
        impl std::error::Error for CaUsedAsEndEntity {}
        let other = CertificateError::Other(OtherError(Arc::new(CaUsedAsEndEntity)));
        assert!(of_certificate(&other).starts_with("is a CA's own"), "{other}");
        let unknown = of_certificate(&CertificateError::UnknownRevocationStatus);
        assert!(unknown.contains("each CA in a server's chain needs its own"), "{unknown}");
        let unsigned = of_list(&CertRevocationListError::BadSignature);
        assert!(unsigned.contains("did not sign"), "{unsigned}");
    }
}
