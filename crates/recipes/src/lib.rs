//! Coordination recipes on ZooKeeper, as pure functions.

pub mod election;
