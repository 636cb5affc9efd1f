//! Bellwether: this file is ours. rsasl's mechanism takes whatever the default credentials are, hands them on to the server
//! if they are forwardable (it asks for every flag), and asks the KDC in its first step, on the connection's task. Here the
//! first step is done beforehand, by [`GssapiCredentials::begin`], on a thread that may block; what is left to the
//! connection's task only computes.

use std::ffi::{c_char, c_void, CStr, CString};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, ptr};

use libgssapi::context::{ClientCtx, CtxFlags, SecurityContext};
use libgssapi::credential::Cred;
use libgssapi::name::Name;
use libgssapi::oid::{GSS_MECH_KRB5, GSS_NT_HOSTBASED_SERVICE};
use libgssapi_sys as sys;

use super::{Exchange, Result, SaslInitiator, SaslInnerOptions, SaslOptions, SaslSession};
use crate::error::Error;

/// 1.2.840.113554.1.2.2
const MECH_KRB5: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02";
/// 1.2.840.113554.1.2.2.1
const NT_KRB5_PRINCIPAL: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01";

/// "The connection is neither signed nor encrypted", of RFC 4752.
const NO_SECURITY_LAYER: u8 = 1;

/// Why Kerberos did not do as it was asked, in its own words.
#[derive(Clone, Debug)]
pub struct GssapiError {
    message: String,
    code: i32,
    is_expired: bool,
}

impl GssapiError {
    fn with_message(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 0, is_expired: false }
    }

    /// Returns the error code of Kerberos, 0 where there is none.
    pub fn code(&self) -> i32 {
        self.code
    }

    /// Returns whether there are tickets, and they have ended. Kerberos has no error code of its own for that.
    pub fn is_expired(&self) -> bool {
        self.is_expired
    }
}

impl fmt::Display for GssapiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for GssapiError {}

impl From<libgssapi::error::Error> for GssapiError {
    /// To be called on the thread of the error: the library has its words only there.
    fn from(error: libgssapi::error::Error) -> Self {
        let words = error.to_string();
        // "Unspecified GSS failure.  Minor code may provide more information (the words of Kerberos)"
        let message = match words.split_once(" (") {
            Some((_, kerberos)) if error.minor != 0 && kerberos != "Success)" => {
                kerberos.strip_suffix(')').unwrap_or(kerberos)
            },
            Some((gssapi, _)) => gssapi,
            None => &words,
        };
        let message = message.replace('\n', " ");
        // The routine errors are numbers, not bits.
        let routine = error.major.bits() & (0xff << 16);
        let is_expired = routine == libgssapi::error::MajorFlags::GSS_S_CREDENTIALS_EXPIRED.bits();
        Self { message, code: error.minor as i32, is_expired }
    }
}

/// Credentials to log in with.
#[derive(Clone)]
pub struct GssapiCredentials(Cred);

impl GssapiCredentials {
    /// Acquires the credentials of this principal, or the default ones, out of this store: pairs such as `ccache` and
    /// `client_keytab`; empty for the default one. Blocks: it may ask the KDC.
    pub fn acquire(principal: Option<&str>, store: &[(&str, &str)]) -> Result<Self, GssapiError> {
        fn text(text: &str) -> Result<CString, GssapiError> {
            CString::new(text).map_err(|_| GssapiError::with_message("a zero byte in a name"))
        }
        let texts =
            store.iter().map(|(key, value)| Ok((text(key)?, text(value)?))).collect::<Result<Vec<_>, GssapiError>>()?;
        let mut elements: Vec<_> = texts
            .iter()
            .map(|(key, value)| sys::gss_key_value_element_desc { key: key.as_ptr(), value: value.as_ptr() })
            .collect();
        let set = sys::gss_key_value_set_desc { count: elements.len() as u32, elements: elements.as_mut_ptr() };
        let set_or_default: *const sys::gss_key_value_set_desc = if elements.is_empty() { ptr::null() } else { &set };
        let mut mechanism = oid(MECH_KRB5);
        let mut mechanisms = sys::gss_OID_set_desc { count: 1, elements: &mut mechanism };
        let mut name: sys::gss_name_t = ptr::null_mut();
        let mut cred: sys::gss_cred_id_t = ptr::null_mut();
        let mut minor = 0;
        // SAFETY: all that is pointed to lives until the calls return, and GSSAPI keeps none of it. What it allocates is
        // given back here, or owned by what is returned.
        unsafe {
            if let Some(principal) = principal {
                let mut buffer = sys::gss_buffer_desc {
                    length: principal.len() as _,
                    value: principal.as_ptr() as *mut c_void,
                };
                let mut kind = oid(NT_KRB5_PRINCIPAL);
                let major = sys::gss_import_name(&mut minor, &mut buffer, &mut kind, &mut name);
                check(major, minor)?;
            }
            let major = sys::gss_acquire_cred_from(
                &mut minor,
                name,
                sys::_GSS_C_INDEFINITE,
                &mut mechanisms,
                sys::GSS_C_INITIATE as _,
                set_or_default,
                &mut cred,
                ptr::null_mut(),
                ptr::null_mut(),
            );
            let acquired = check(major, minor);
            let mut ignored = 0;
            if !name.is_null() {
                sys::gss_release_name(&mut ignored, &mut name);
            }
            acquired?;
        }
        Ok(Self(Cred::from(cred)))
    }

    /// Returns for how long they are valid. Blocks: it may ask the KDC.
    pub fn lifetime(&self) -> Result<Duration, GssapiError> {
        Ok(self.0.lifetime()?)
    }

    /// Returns the principal whose credentials these are. Blocks: it may ask the KDC.
    pub fn principal(&self) -> Result<String, GssapiError> {
        Ok(display(&self.0.name()?)?)
    }

    /// Begins a login with this service of this host. Blocks: it may ask the KDC and the name server.
    pub fn begin(&self, service: &str, host: &str) -> Result<GssapiSaslOptions, GssapiError> {
        let target = Name::new(format!("{service}@{host}").as_bytes(), Some(&GSS_NT_HOSTBASED_SERVICE))?;
        // No delegation: the server has no use for our tickets.
        let flags = CtxFlags::GSS_C_MUTUAL_FLAG | CtxFlags::GSS_C_INTEG_FLAG | CtxFlags::GSS_C_SEQUENCE_FLAG;
        // What Kerberos makes of the host's name: with DNS, it may be another.
        let canonical = target.canonicalize(Some(&GSS_MECH_KRB5)).and_then(|name| display(&name));
        let principal = canonical.unwrap_or_else(|_| format!("{service}/{host}"));
        let mut context = ClientCtx::new(Some(self.0.clone()), target, flags, Some(&GSS_MECH_KRB5));
        let token = context.step(None, None)?.map(|token| token.to_vec()).unwrap_or_default();
        let failure = Arc::default();
        let exchange = GssapiExchange { context, is_layer_agreed: false, failure: Arc::clone(&failure) };
        let begun = Arc::new(Mutex::new(Some((exchange, token))));
        Ok(GssapiSaslOptions { begun, failure, target: principal.into() })
    }

    /// Returns the files that are read instead of `/etc/krb5.conf`, if others are.
    pub fn other_config_files() -> Option<String> {
        std::env::var("KRB5_CONFIG").ok()
    }

    /// Returns the name of the default credential cache.
    pub fn default_cache() -> Option<String> {
        // SAFETY: the name is copied before the context, which owns it, is freed.
        unsafe {
            let mut context = ptr::null_mut();
            if krb5::krb5_init_context(&mut context) != 0 {
                return None;
            }
            let name = krb5::krb5_cc_default_name(context);
            let name = (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned());
            krb5::krb5_free_context(context);
            name
        }
    }

    /// Forgets a credential cache, and the tickets in it.
    pub fn destroy_cache(name: &str) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: the context and the cache are those that the calls made, and used no more afterwards.
        unsafe {
            let mut context = ptr::null_mut();
            if krb5::krb5_init_context(&mut context) != 0 {
                return;
            }
            let mut cache = ptr::null_mut();
            if krb5::krb5_cc_resolve(context, name.as_ptr(), &mut cache) == 0 {
                krb5::krb5_cc_destroy(context, cache);
            }
            krb5::krb5_free_context(context);
        }
    }
}

/// Returns a principal's name; without a realm where the KDC is to find that.
fn display(name: &Name) -> Result<String, libgssapi::error::Error> {
    let name = name.display_name()?;
    Ok(String::from_utf8_lossy(&name).trim_end_matches('@').to_owned())
}

fn oid(bytes: &'static [u8]) -> sys::gss_OID_desc {
    sys::gss_OID_desc { length: bytes.len() as u32, elements: bytes.as_ptr() as *mut c_void }
}

fn check(major: u32, minor: u32) -> Result<(), GssapiError> {
    match major {
        sys::GSS_S_COMPLETE => Ok(()),
        _ => Err(libgssapi::error::Error { major: libgssapi::error::MajorFlags::from_bits_retain(major), minor }.into()),
    }
}

/// GSSAPI has no call that forgets a cache, or that names the default one.
mod krb5 {
    use super::{c_char, c_void};

    #[link(name = "krb5")]
    extern "C" {
        pub(super) fn krb5_init_context(context: *mut *mut c_void) -> i32;
        pub(super) fn krb5_free_context(context: *mut c_void);
        pub(super) fn krb5_cc_resolve(context: *mut c_void, name: *const c_char, cache: *mut *mut c_void) -> i32;
        pub(super) fn krb5_cc_default_name(context: *mut c_void) -> *const c_char;
        pub(super) fn krb5_cc_destroy(context: *mut c_void, cache: *mut c_void) -> i32;
    }
}

impl From<GssapiSaslOptions> for SaslOptions {
    fn from(options: GssapiSaslOptions) -> Self {
        Self(SaslInnerOptions::Gssapi(options))
    }
}

/// A login that was begun, for one connection.
#[derive(Clone)]
pub struct GssapiSaslOptions {
    begun: Arc<Mutex<Option<(GssapiExchange, Vec<u8>)>>>,
    failure: Arc<Mutex<Option<GssapiFailure>>>,
    target: Arc<str>,
}

/// Why a login is not accepted by this side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GssapiFailure {
    /// The server takes no part in it, and goes on without.
    Unanswered,
    /// The server's answers are wrong.
    Refused(String),
}

impl GssapiSaslOptions {
    /// Returns why the server's part in it is not accepted.
    pub fn failure(&self) -> Option<GssapiFailure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the server's principal, as Kerberos names it.
    pub fn target(&self) -> &str {
        &self.target
    }
}

impl fmt::Debug for GssapiSaslOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GssapiSaslOptions")
    }
}

impl SaslInitiator for GssapiSaslOptions {
    fn new_session(&self, _hostname: &str) -> Result<SaslSession> {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Not an error that ends the session: it goes on over another connection, with another login.
        let (exchange, output) =
            begun.ok_or_else(|| Error::UnexpectedError("this login was for one connection".to_string()))?;
        Ok(SaslSession { session: Exchange::Gssapi(exchange), output, finished: false })
    }
}

/// The rest of RFC 4752, after the first step.
pub(super) struct GssapiExchange {
    context: ClientCtx,
    is_layer_agreed: bool,
    failure: Arc<Mutex<Option<GssapiFailure>>>,
}

impl GssapiExchange {
    pub(super) fn is_finished(&self) -> bool {
        self.is_layer_agreed
    }

    /// Returns the error of a login that the server leaves before its end.
    pub(super) fn unanswered(&self) -> Error {
        self.fail(GssapiFailure::Unanswered);
        Error::UnexpectedError("SASL GSSAPI: the server does not answer it".to_string())
    }

    fn fail(&self, failure: GssapiFailure) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    pub(super) fn step(&mut self, challenge: &[u8]) -> Result<Vec<u8>> {
        self.answer(challenge).map_err(|error| {
            self.fail(GssapiFailure::Refused(error.to_string()));
            Error::UnexpectedError(format!("SASL GSSAPI: {error}"))
        })
    }

    fn answer(&mut self, challenge: &[u8]) -> Result<Vec<u8>, GssapiError> {
        if !self.context.is_complete() {
            let token = self.context.step(Some(challenge), None)?;
            return Ok(token.map(|token| token.to_vec()).unwrap_or_default());
        }
        let offer = self.context.unwrap(challenge)?;
        match *offer {
            [layers, _, _, _] if layers & NO_SECURITY_LAYER != 0 => {},
            _ => return Err(GssapiError::with_message("it takes only connections that are signed by Kerberos")),
        }
        // No name follows: whose the ticket is, is whom we are.
        let answer = self.context.wrap(false, &[NO_SECURITY_LAYER, 0, 0, 0])?;
        self.is_layer_agreed = true;
        Ok(answer.to_vec())
    }
}
