//! The Kubernetes objects that hooks change, and how a pod reaches the Kubernetes API.

use super::error::ConfigError;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The directory where Kubernetes mounts the credentials of a pod's service account.
pub(super) const ACCOUNT_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Values of the environment variables of a container in Kubernetes. Outside of Kubernetes, all except `name` are empty.
#[derive(Clone, Debug, Default)]
pub struct PodEnvironment {
    /// The API server's host.
    pub host: String,
    /// The API server's port.
    pub port: String,
    /// The pod's name, or else the host's name: the default of the member's id.
    pub name: String,
    /// The pod's address.
    pub ip: String,
}

/// A hook that keeps a Kubernetes object up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesHook {
    pub target: KubernetesTarget,
    /// The API server's host as written in a URL: an IPv6 address is in brackets.
    pub host: String,
    pub port: u16,
    /// The directory of the service account, with `token`, `ca.crt` and `namespace`.
    pub account: PathBuf,
    pub timeout: Duration,
}

/// The object that a hook changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubernetesTarget {
    /// The label with this key of the member's own pod.
    PodLabel { key: String, pod: String },
    /// An EndpointSlice that contains the address of the leader's pod. `address` is the address of the member's own pod.
    EndpointSlice { name: String, address: IpAddr },
}

impl KubernetesHook {
    pub(super) fn new(
        target: KubernetesTarget,
        own: &PodEnvironment,
        account: PathBuf,
        timeout: Duration,
    ) -> Result<Self, ConfigError> {
        let (host, port) = api_server(own)?;
        Ok(Self { target, host, port, account, timeout })
    }
}

impl KubernetesTarget {
    /// Returns the label `key` of the member's own pod. The error does not show `key`, because the pod's name is wrong
    /// and not the key.
    pub(super) fn pod_label(key: &str, own: &PodEnvironment) -> Result<Self, ConfigError> {
        let pod = own.name.clone();
        if !is_subdomain(&pod) {
            return Err(ConfigError::without_key(format!(
                "needs the pod's name, but {pod:?} is not valid"
            ))
            .remedy("set POD_NAME by the downward API (metadata.name)")
            .hiding_value());
        }
        Ok(Self::PodLabel { key: key.into(), pod })
    }

    /// Returns the EndpointSlice `name`, with the address of the member's own pod. An error about that address does not
    /// show `name`.
    pub(super) fn endpoint_slice(name: &str, own: &PodEnvironment) -> Result<Self, ConfigError> {
        if !is_subdomain(name) {
            return Err(ConfigError::without_key("must be the name of an EndpointSlice")
                .remedy("write such as \"example-leader\""));
        }
        let ip = &own.ip;
        let Ok(address) = ip.parse() else {
            return Err(ConfigError::without_key(format!(
                "needs the pod's address, but {ip:?} is not one"
            ))
            .remedy("set POD_IP by the downward API (status.podIP)")
            .hiding_value());
        };
        Ok(Self::EndpointSlice { name: name.into(), address })
    }
}

/// Returns the host and port of the API server. If they are missing, the error does not show the hook's value, because the
/// environment is wrong and not that value.
fn api_server(own: &PodEnvironment) -> Result<(String, u16), ConfigError> {
    let port = own.port.parse().ok().filter(|port| *port != 0 && !own.host.is_empty());
    let Some(port) = port else {
        return Err(ConfigError::without_key(
            "is only for a pod in Kubernetes, which sets KUBERNETES_SERVICE_HOST and \
             KUBERNETES_SERVICE_PORT",
        )
        .remedy("leave it out elsewhere")
        .hiding_value());
    };
    let bare = own.host.trim_start_matches('[').trim_end_matches(']');
    let host = if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() };
    Ok((host, port))
}

/// Returns whether Kubernetes accepts this name for a pod or an EndpointSlice: it must be a DNS subdomain.
fn is_subdomain(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|part| {
            !part.is_empty()
                && !part.starts_with('-')
                && !part.ends_with('-')
                && part.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        })
}

/// Returns whether Kubernetes accepts this name for a namespace. Such a name can be put into a URL's path as it is.
pub fn is_namespace(name: &str) -> bool {
    is_subdomain(name) && !name.contains('.') && name.len() <= 63
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(host: &str, port: &str, name: &str) -> PodEnvironment {
        let ip = "10.0.0.7".into();
        PodEnvironment { host: host.into(), port: port.into(), name: name.into(), ip }
    }

    fn label(key: &str, host: &str, port: &str, name: &str) -> Result<KubernetesHook, String> {
        let written = pod(host, port, name);
        let timeout = Duration::from_secs(5);
        let hook = KubernetesTarget::pod_label(key, &written).and_then(|label| {
            KubernetesHook::new(label, &written, ACCOUNT_DIRECTORY.into(), timeout)
        });
        hook.map_err(|flaw| flaw.with_value("pod_label", key).to_string())
    }

    #[test]
    fn a_slice_has_a_name_and_the_pod_an_address() {
        let slice = |name: &str, ip: &str| {
            let written = PodEnvironment { ip: ip.into(), ..pod("10.0.0.1", "443", "app-0") };
            KubernetesTarget::endpoint_slice(name, &written)
                .map_err(|flaw| flaw.with_value("endpoint_slice", name).to_string())
        };
        slice("example-leader", "10.0.0.7").unwrap();
        slice("example-leader", "fd00::7").unwrap();
        for name in ["", "Example", "a/b", "a?b"] {
            let error = slice(name, "10.0.0.7").unwrap_err();
            assert!(error.starts_with(&format!("endpoint_slice = {name:?} must")), "{error}");
        }
        for ip in ["", "10.0.0.7:80"] {
            assert!(slice("a", ip).unwrap_err().contains("set POD_IP"));
        }
    }

    #[test]
    fn what_the_pod_lacks_is_said() {
        for (host, port, name, said) in [
            ("", "", "app-0", "is only for a pod"),
            ("10.0.0.1", "", "app-0", "is only for a pod"),
            ("10.0.0.1", "tcp", "app-0", "is only for a pod"),
            ("10.0.0.1", "0", "app-0", "is only for a pod"),
            ("10.0.0.1", "443", "", "set POD_NAME"),
            ("10.0.0.1", "443", "../nodes/x", "set POD_NAME"),
            ("10.0.0.1", "443", "App", "set POD_NAME"),
        ] {
            let error = label("role", host, port, name).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn an_address_of_version_6_is_in_brackets() {
        for host in ["fd00::1", "[fd00::1]"] {
            assert_eq!(label("role", host, "443", "app-0").unwrap().host, "[fd00::1]");
        }
        assert_eq!(label("role", "10.0.0.1", "443", "app-0").unwrap().host, "10.0.0.1");
    }
}
