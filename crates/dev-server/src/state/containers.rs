//! Znodes that the server itself deletes.

use super::{Now, ServerState};

impl ServerState {
    /// Deletes containers and znodes with a TTL that are due, each in its own transaction, and returns their paths.
    pub(crate) fn delete_outlived(&mut self, now: Now) -> Vec<String> {
        let outlived = self.tree.outlived(now.wall_ms);
        for path in &outlived {
            let zxid = self.next_zxid();
            self.delete(path, zxid);
            self.zxid = zxid;
        }
        outlived
    }
}
