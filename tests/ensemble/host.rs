//! The machine that something runs on: this one, or one of a test's own network.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{fs::File, net::Ipv4Addr, os::fd::AsFd, sync::Arc};

pub(crate) struct Host {
    /// The address at which other hosts reach it.
    pub(crate) address: Ipv4Addr,
    /// A network namespace lives as long as a process in it or a file like this one.
    namespace: Option<File>,
}

impl Host {
    pub(crate) fn this() -> Arc<Self> {
        Arc::new(Self { address: Ipv4Addr::LOCALHOST, namespace: None })
    }

    pub(crate) fn new(address: Ipv4Addr, namespace: File) -> Arc<Self> {
        Arc::new(Self { address, namespace: Some(namespace) })
    }

    /// Does something as on this host: sockets that it opens and processes that it starts belong there.
    pub(crate) fn inside<T>(&self, act: impl FnOnce() -> T) -> T {
        let _back = self.namespace.as_ref().map(|_| WayBack(namespace_of_this_thread()));
        self.enter();
        act()
    }

    /// Moves this thread to the host for good.
    pub(crate) fn enter(&self) {
        if let Some(namespace) = &self.namespace {
            enter(namespace);
        }
    }
}

/// Leads this thread back where it came from, also when it panics.
struct WayBack(File);

impl Drop for WayBack {
    fn drop(&mut self) {
        enter(&self.0);
    }
}

fn namespace_of_this_thread() -> File {
    File::open("/proc/thread-self/ns/net").expect("every thread has a network namespace")
}

fn enter(namespace: &File) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .expect("the creator of a namespace may enter it");
}
