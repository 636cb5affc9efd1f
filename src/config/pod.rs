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

impl KubernetesTarget {
    /// Parses the value of the key `pod_label` or `endpoint_slice`. If a variable of the pod is wrong, and not the value,
    /// the error does not show the value.
    pub(super) fn new(key: &str, value: &str, own: &PodEnvironment) -> Result<Self, ConfigError> {
        let PodEnvironment { name, ip, .. } = own;
        if key == "pod_label" {
            let problem = || format!("needs the pod's name, but {name:?} is not valid");
            let remedy = "set POD_NAME by the downward API (metadata.name)";
            return match is_subdomain(name) {
                true => Ok(Self::PodLabel { key: value.into(), pod: name.clone() }),
                false => Err(ConfigError::without_key(problem()).remedy(remedy).hiding_value()),
            };
        }
        if !is_subdomain(value) {
            return Err(ConfigError::without_key("must be the name of an EndpointSlice")
                .remedy("write such as \"example-leader\""));
        }
        let address = ip.parse().map_err(|_| {
            ConfigError::without_key(format!("needs the pod's address, but {ip:?} is not one"))
                .remedy("set POD_IP by the downward API (status.podIP)")
                .hiding_value()
        })?;
        Ok(Self::EndpointSlice { name: value.into(), address })
    }
}

impl PodEnvironment {
    /// Returns the host and port of the API server.
    pub(super) fn api_server(&self) -> Result<(String, u16), ConfigError> {
        let port = self.port.parse().ok().filter(|port| *port != 0 && !self.host.is_empty());
        let port = port.ok_or_else(|| {
            let problem = "is only for a pod in Kubernetes, which sets KUBERNETES_SERVICE_HOST and \
                           KUBERNETES_SERVICE_PORT";
            ConfigError::without_key(problem).remedy("leave it out elsewhere")
        })?;
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        let host = if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() };
        Ok((host, port))
    }
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

    fn label(host: &str, port: &str, name: &str) -> Result<String, String> {
        let pod = pod(host, port, name);
        KubernetesTarget::new("pod_label", "role", &pod)?;
        Ok(pod.api_server()?.0)
    }

    #[test]
    fn a_slice_has_a_name_and_the_pod_an_address() {
        let slice = |name: &str, ip: &str| {
            let written = PodEnvironment { ip: ip.into(), ..pod("10.0.0.1", "443", "app-0") };
            KubernetesTarget::new("endpoint_slice", name, &written)
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
            let error = label(host, port, name).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn an_address_of_version_6_is_in_brackets() {
        for host in ["fd00::1", "[fd00::1]"] {
            assert_eq!(label(host, "443", "app-0").unwrap(), "[fd00::1]");
        }
        assert_eq!(label("10.0.0.1", "443", "app-0").unwrap(), "10.0.0.1");
    }
}
