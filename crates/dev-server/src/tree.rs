//! The znodes.
//!
//! Nothing is refused here: [`Preparation`](crate::prepare::Preparation) has decided before whether a change is
//! allowed.

use crate::acl::{self, AclEntry};
use crate::java::JavaSet;
use crate::stat::{NodeMeta, Owner, Stat};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The initial number of buckets of the real server's set of children (`DataNode.addChild`).
const CHILDREN_BUCKETS: usize = 8;
/// The initial number of buckets of Java's hash sets.
const DEFAULT_BUCKETS: usize = 16;

/// A znode.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// `None` is null, which differs from empty data, as in the real server.
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) acl: Arc<[AclEntry]>,
    pub(crate) meta: NodeMeta,
    children: JavaSet,
}

impl Node {
    fn new(data: Option<Vec<u8>>, acl: Arc<[AclEntry]>, meta: NodeMeta) -> Self {
        Self { data, acl, meta, children: JavaSet::with_buckets(CHILDREN_BUCKETS) }
    }

    /// Creates a znode of a new server. As in the real server, its children do not count as creations.
    fn with_children(acl: Arc<[AclEntry]>, names: &[&str]) -> Self {
        let mut node = Self::new(Some(Vec::new()), acl, NodeMeta::default());
        for name in names {
            node.children.insert(name);
        }
        node
    }

    pub(crate) fn stat(&self) -> Stat {
        let data_length = self.data.as_ref().map_or(0, Vec::len);
        let data_length = i32::try_from(data_length).unwrap_or(i32::MAX);
        Stat { meta: self.meta, data_length, children: self.children_count() }
    }

    /// Returns the names of the children, in the order of the real server.
    pub(crate) fn children(&self) -> Vec<String> {
        self.children.list()
    }

    pub(crate) fn children_count(&self) -> i32 {
        i32::try_from(self.children.len()).unwrap_or(i32::MAX)
    }
}

/// A znode to create.
#[derive(Debug)]
pub(crate) struct NewNode {
    pub(crate) path: String,
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) acl: Arc<[AclEntry]>,
    pub(crate) owner: Owner,
    /// The number of children ever created under the parent, including this one.
    pub(crate) parent_creations: i32,
}

/// All znodes of a server.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Znodes by path. The root's path is "", so that the path of every other znode's parent ends before its last
    /// slash.
    nodes: HashMap<String, Node>,
    /// The paths of ephemeral znodes by session. As in the real server, a session keeps its set until the session ends,
    /// even if the set is empty.
    ephemerals: BTreeMap<i64, JavaSet>,
}

impl Tree {
    /// Returns the tree of a new server: the root, and `/zookeeper` with its two children.
    pub(crate) fn new() -> Self {
        let mut config = Node::with_children(acl::read_only(), &[]);
        // In the real server, this ACL has version -1.
        config.meta.aversion = -1;
        let nodes = HashMap::from([
            (String::new(), Node::with_children(acl::open(), &["zookeeper"])),
            ("/zookeeper".to_owned(), Node::with_children(acl::open(), &["quota", "config"])),
            ("/zookeeper/quota".to_owned(), Node::with_children(acl::open(), &[])),
            ("/zookeeper/config".to_owned(), config),
        ]);
        Self { nodes, ephemerals: BTreeMap::new() }
    }

    pub(crate) fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.get(key(path))
    }

    /// Creates a znode and returns its stat; `None` if its parent is missing.
    pub(crate) fn create(&mut self, new: NewNode, zxid: i64, time_ms: i64) -> Option<Stat> {
        let NewNode { path, data, acl, owner, parent_creations } = new;
        let (parent, name) = path.rsplit_once('/')?;
        let parent = self.nodes.get_mut(key(parent))?;
        parent.children.insert(name);
        // The counter is never lowered: after 2147483647, `parent_creations` is negative, and the counter stays
        // (ZOOKEEPER-3249). As in the real server, `pzxid` then stays too.
        if parent_creations > parent.meta.creations {
            parent.meta.creations = parent_creations;
            parent.meta.pzxid = zxid;
        }
        if let Owner::Session(session) = owner {
            let paths = self.ephemerals.entry(session);
            paths.or_insert_with(|| JavaSet::with_buckets(DEFAULT_BUCKETS)).insert(&path);
        }
        let node = Node::new(data, acl, NodeMeta::new(zxid, time_ms, owner));
        let stat = node.stat();
        self.nodes.insert(path, node);
        Some(stat)
    }

    /// Deletes a znode without children. Returns true if it existed.
    pub(crate) fn delete(&mut self, path: &str, zxid: i64) -> bool {
        let Some((parent, name)) = path.rsplit_once('/') else { return false };
        let Some(node) = self.nodes.remove(path) else { return false };
        if let Some(parent) = self.nodes.get_mut(key(parent)) {
            parent.children.remove(name);
            parent.meta.pzxid = parent.meta.pzxid.max(zxid);
        }
        if let Owner::Session(session) = node.meta.owner
            && let Some(paths) = self.ephemerals.get_mut(&session)
        {
            paths.remove(path);
        }
        true
    }

    /// Removes and returns a znode without children, as if it had never been created, except that an ephemeral znode
    /// stays listed for its session. A simulation thus makes a server that has lost a transaction.
    pub(crate) fn take_out(&mut self, path: &str) -> Option<Node> {
        let (parent, name) = path.rsplit_once('/')?;
        let node = self.nodes.remove(path)?;
        if let Some(parent) = self.nodes.get_mut(key(parent)) {
            parent.children.remove(name);
        }
        Some(node)
    }

    /// Adds a znode that was [removed](Self::take_out), unless its parent is gone.
    pub(crate) fn put_in(&mut self, path: &str, node: Node) {
        let Some((parent, name)) = path.rsplit_once('/') else { return };
        if let Some(parent) = self.nodes.get_mut(key(parent)) {
            parent.children.insert(name);
            self.nodes.insert(path.to_owned(), node);
        }
    }

    /// Changes the data of a znode, and returns its stat; `None` if the znode does not exist.
    pub(crate) fn set_data(
        &mut self,
        path: &str,
        data: Option<Vec<u8>>,
        version: i32,
        zxid: i64,
        time_ms: i64,
    ) -> Option<Stat> {
        let node = self.nodes.get_mut(key(path))?;
        node.data = data;
        node.meta.version = version;
        node.meta.mzxid = zxid;
        node.meta.mtime_ms = time_ms;
        Some(node.stat())
    }

    pub(crate) fn set_acl(
        &mut self,
        path: &str,
        acl: Arc<[AclEntry]>,
        version: i32,
    ) -> Option<Stat> {
        let node = self.nodes.get_mut(key(path))?;
        node.acl = acl;
        node.meta.aversion = version;
        Some(node.stat())
    }

    /// Returns the paths of a session's znodes, in the order in which the real server deletes and lists them: it uses a
    /// clone of its set (`DataTree.getEphemerals`).
    pub(crate) fn ephemerals_of(&self, session: i64) -> Vec<String> {
        self.ephemerals.get(&session).map(JavaSet::list_of_clone).unwrap_or_default()
    }

    /// Removes the set of a session that ends. The caller has deleted the znodes, so the set is empty.
    pub(crate) fn remove_ephemeral_set(&mut self, session: i64) {
        self.ephemerals.remove(&session);
    }

    /// Returns the znodes that the server itself must delete (`ContainerManager`): containers that had children and
    /// have none left, and znodes without children that have not changed for longer than their TTL.
    pub(crate) fn outlived(&self, wall_ms: i64) -> Vec<String> {
        let outlived = self.nodes.iter().filter(|(_, node)| match node.meta.owner {
            _ if !node.children.is_empty() => false,
            Owner::Container => node.meta.creations > 0,
            Owner::Ttl(ttl_ms) => wall_ms.saturating_sub(node.meta.mtime_ms) > ttl_ms,
            Owner::Tree | Owner::Session(_) => false,
        });
        let mut paths: Vec<String> = outlived.map(|(path, _)| path.clone()).collect();
        paths.sort_unstable();
        paths
    }

    /// Returns the number of znodes as the real server counts them. The root counts twice there, because it is stored
    /// under the two names "" and "/".
    pub(crate) fn count(&self) -> usize {
        self.nodes.len() + 1
    }

    /// Returns the number of znodes below a path, as the real server counts them for `getAllChildrenNumber`.
    pub(crate) fn count_below(&self, path: &str) -> usize {
        if path == "/" {
            return self.nodes.len() - 1;
        }
        let prefix = format!("{path}/");
        // For the empty path, the real server also counts the root, because its second name "/" begins with a slash.
        let root = usize::from(path.is_empty());
        self.nodes.keys().filter(|path| path.starts_with(&prefix)).count() + root
    }

    /// Returns the sessions that have or had ephemeral znodes, and have not ended, with the paths of the ephemeral
    /// znodes that exist.
    pub(crate) fn ephemerals(&self) -> impl Iterator<Item = (i64, Vec<String>)> {
        self.ephemerals.iter().map(|(session, paths)| (*session, paths.list()))
    }

    /// Returns the total length of all paths and data, in bytes, as the real server counts it.
    pub(crate) fn approximate_size(&self) -> usize {
        // The length of the root's second name "/".
        let mut size = 1;
        for (path, node) in &self.nodes {
            size += path.len() + node.data.as_ref().map_or(0, Vec::len);
        }
        size
    }
}

#[cfg(test)]
impl Tree {
    /// Panics unless the lists of children, the paths, and the lists of ephemeral znodes agree.
    pub(crate) fn assert_whole(&self) {
        let listed = |path: &String, owner: Owner| match owner {
            Owner::Session(session) => self.ephemerals[&session].list().contains(path),
            Owner::Tree | Owner::Container | Owner::Ttl(_) => true,
        };
        for (path, node) in &self.nodes {
            if let Some((parent, name)) = path.rsplit_once('/') {
                assert!(self.nodes[parent].children().iter().any(|child| child == name), "{path}");
            }
            for child in node.children() {
                assert!(self.nodes.contains_key(&format!("{path}/{child}")), "{path}/{child}");
            }
            assert!(listed(path, node.meta.owner), "{path}");
        }
        let ephemerals: usize = self.ephemerals.values().map(JavaSet::len).sum();
        let owned = |node: &&Node| matches!(node.meta.owner, Owner::Session(_));
        assert_eq!(ephemerals, self.nodes.values().filter(owned).count());
    }
}

/// Returns the key of a path in `Tree::nodes`: the path itself, but "" for the root.
fn key(path: &str) -> &str {
    if path == "/" { "" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(path: &str, owner: Owner, parent_creations: i32) -> NewNode {
        NewNode {
            path: path.to_owned(),
            data: Some(b"data".to_vec()),
            acl: acl::open(),
            owner,
            parent_creations,
        }
    }

    #[test]
    fn a_new_tree_is_that_of_a_new_server() {
        let tree = Tree::new();
        let root = tree.node("/").unwrap();
        assert_eq!(root.stat().cversion(), -1);
        assert_eq!(root.children(), ["zookeeper"]);
        assert_eq!(tree.node("/zookeeper").unwrap().stat().cversion(), -2);
        assert_eq!(tree.node("/zookeeper/config").unwrap().stat().meta.aversion, -1);
        assert_eq!(tree.count(), 5);
        assert_eq!(tree.count_below("/"), 3);
        assert_eq!(tree.count_below("/zookeeper"), 2);
    }

    #[test]
    fn creating_and_deleting_is_seen_at_the_parent() {
        let mut tree = Tree::new();
        let stat = tree.create(new("/a", Owner::Tree, 1), 7, 100).unwrap();
        assert_eq!((stat.meta.czxid, stat.meta.mzxid, stat.meta.pzxid), (7, 7, 7));
        assert_eq!((stat.meta.ctime_ms, stat.data_length, stat.meta.version), (100, 4, 0));
        let root = tree.node("/").unwrap().stat();
        assert_eq!((root.meta.pzxid, root.cversion(), root.children), (7, 0, 2));
        assert!(tree.delete("/a", 8));
        let root = tree.node("/").unwrap().stat();
        assert_eq!((root.meta.pzxid, root.cversion(), root.children), (8, 1, 1));
        assert!(!tree.delete("/a", 9));
    }

    #[test]
    fn the_counter_of_creations_never_goes_back() {
        let mut tree = Tree::new();
        tree.create(new("/a", Owner::Tree, i32::MAX), 1, 0);
        tree.create(new("/b", Owner::Tree, i32::MIN), 2, 0);
        let root = tree.node("/").unwrap().meta;
        assert_eq!((root.creations, root.pzxid), (i32::MAX, 1));
    }

    #[test]
    fn ephemerals_are_listed_until_they_are_deleted() {
        let mut tree = Tree::new();
        tree.create(new("/a", Owner::Session(5), 1), 1, 0);
        tree.create(new("/b", Owner::Session(6), 2), 2, 0);
        assert_eq!(tree.ephemerals_of(5), ["/a"]);
        tree.delete("/a", 3);
        assert!(tree.ephemerals_of(5).is_empty());
        assert_eq!(tree.ephemerals().count(), 2);
        tree.remove_ephemeral_set(5);
        assert_eq!(tree.ephemerals().count(), 1);
    }

    #[test]
    fn a_container_is_outlived_once_it_had_children() {
        let mut tree = Tree::new();
        tree.create(new("/c", Owner::Container, 1), 1, 0);
        assert!(tree.outlived(0).is_empty());
        tree.create(new("/c/x", Owner::Tree, 1), 2, 0);
        assert!(tree.outlived(0).is_empty());
        tree.delete("/c/x", 3);
        assert_eq!(tree.outlived(0), ["/c"]);
    }

    #[test]
    fn a_ttl_begins_anew_with_each_change() {
        let mut tree = Tree::new();
        tree.create(new("/t", Owner::Ttl(50), 1), 1, 100);
        assert!(tree.outlived(150).is_empty());
        assert_eq!(tree.outlived(151), ["/t"]);
        tree.set_data("/t", None, 1, 2, 120);
        assert!(tree.outlived(151).is_empty());
        tree.create(new("/t/x", Owner::Tree, 1), 3, 130);
        assert!(tree.outlived(1000).is_empty());
    }
}
