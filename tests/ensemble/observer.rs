//! An independent client of ZooKeeper, which reads the znodes, and writes where a test needs another client.

use crate::{
    servers::Servers,
    wait::{LIMIT, eventually},
};
use serde_json::Value;
use std::{sync::Mutex, thread, time::Duration};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};
use zookeeper::{Acls, Client, CreateMode, Error, Stat};

pub(crate) struct Observer {
    connect_string: String,
    client: Mutex<Client>,
    runtime: Handle,
    /// Ends the runtime's thread when the observer is dropped.
    _until_dropped: oneshot::Sender<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Znode {
    pub(crate) name: String,
    pub(crate) data: Vec<u8>,
    pub(crate) stat: Stat,
}

impl Observer {
    pub(crate) fn of(servers: &Servers) -> Self {
        Self::at(&servers.connect_string())
    }

    /// Connects with a connect string, which may end in a chroot.
    pub(crate) fn at(connect_string: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        let (until_dropped, dropped) = oneshot::channel::<()>();
        thread::spawn(move || runtime.block_on(dropped));
        let client = Mutex::new(connect(connect_string, &handle));
        let connect_string = connect_string.to_owned();
        Self { connect_string, client, runtime: handle, _until_dropped: until_dropped }
    }

    pub(crate) fn znode(&self, path: &str) -> Option<Znode> {
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        self.read(async |client| match client.get_data(path).await {
            Ok((data, stat)) => Ok(Some(Znode { name: name.clone(), data, stat })),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// Returns the queue: the members' znodes in order, which are ephemeral and named with the prefix and ten digits.
    pub(crate) fn queue(&self, election: &str, prefix: &str) -> Vec<Znode> {
        let mut names = self.read(async |client| match client.list_children(election).await {
            Err(Error::NoNode) => Ok(Vec::new()),
            names => names,
        });
        names.retain(|name| name.strip_prefix(prefix).is_some_and(is_ten_digits));
        names.sort();
        let found = names.iter().filter_map(|name| self.znode(&format!("{election}/{name}")));
        found.filter(|znode| znode.stat.ephemeral_owner != 0).collect()
    }

    pub(crate) fn make_path(&self, path: &str) {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.write(self.client().mkdir(path, &options));
    }

    pub(crate) fn create(&self, path: &str, data: &[u8], mode: CreateMode) {
        let options = mode.with_acls(Acls::anyone_all());
        self.write(self.client().create(path, data, &options));
    }

    pub(crate) fn set(&self, path: &str, data: &[u8]) {
        self.write(self.client().set_data(path, data, None));
    }

    /// Returns when there is no such znode, nor any below it.
    pub(crate) fn delete(&self, path: &str) {
        let children = self.read(async |client| match client.list_children(path).await {
            Err(Error::NoNode) => Ok(Vec::new()),
            names => names,
        });
        children.iter().for_each(|name| self.delete(&format!("{path}/{name}")));
        let refused = self.read(async |client| match client.delete(path, None).await {
            Ok(()) | Err(Error::NoNode) => Ok(false),
            Err(Error::NotEmpty) => Ok(true),
            Err(error) => Err(error),
        });
        // Another client was faster and created a znode below it.
        if refused {
            self.delete(path);
        }
    }

    /// Asks once, for an answer that may be a refusal.
    pub(crate) fn ask<T>(&self, ask: impl AsyncFn(Client) -> Result<T, Error>) -> Result<T, Error> {
        self.runtime.block_on(async {
            tokio::time::timeout(LIMIT, ask(self.client()))
                .await
                .expect("ZooKeeper answers in time")
        })
    }

    fn read<T>(&self, ask: impl AsyncFn(Client) -> Result<T, Error>) -> T {
        eventually("ZooKeeper answers the observer", || {
            self.runtime.block_on(ask(self.client())).map_err(|error| {
                // The faults of a long test may cost the observer its session as well.
                if error == Error::SessionExpired {
                    let anew = connect(&self.connect_string, &self.runtime);
                    *self.client.lock().expect("no thread panics while holding it") = anew;
                }
                error.to_string()
            })
        })
    }

    fn client(&self) -> Client {
        self.client.lock().expect("no thread panics while holding it").clone()
    }

    fn write<T>(&self, request: impl Future<Output = Result<T, Error>>) {
        self.runtime
            .block_on(async { tokio::time::timeout(LIMIT, request).await })
            .expect("ZooKeeper answers in time")
            .expect("ZooKeeper lets the observer write");
    }
}

fn connect(connect_string: &str, runtime: &Handle) -> Client {
    eventually("the observer connects", || {
        let connector = Client::connector().with_session_timeout(Duration::from_secs(20));
        runtime.block_on(connector.connect(connect_string)).map_err(|error| error.to_string())
    })
}

impl Znode {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.data).unwrap_or_default()
    }

    /// Returns the name of the leader's znode, as this znode's data tells it.
    pub(crate) fn told_leader(&self) -> Option<String> {
        Some(self.json()["leader"]["znode"].as_str()?.to_owned())
    }

    pub(crate) fn token(&self) -> u64 {
        u64::try_from(self.stat.czxid).expect("a zxid of a young ensemble")
    }
}

fn is_ten_digits(text: &str) -> bool {
    text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit())
}
